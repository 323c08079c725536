# The command `kidx` alone, without Spark and Java, for the init container of docs/recover.md:
#
#   docker build --tag kidx .
#
# tests/wheel/test_image.py runs these steps in a directory, without a container.
FROM python:3.12-slim

WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY kidxlib ./kidxlib

# The versions that the project is tested with.
RUN sed -nE 's/^([A-Za-z0-9_.-]+==[^ \\]+).*/\1/p' requirements.lock > pins.txt
RUN python -m venv /opt/kidx
RUN /opt/kidx/bin/pip install --no-cache-dir --constraint pins.txt .

# Loops are compiled here, which takes half a minute, and not in each pod. What is compiled is used where it could be
# written too, by whatever user a broker has.
RUN /opt/kidx/bin/kidx doctor --compile
RUN find /opt/kidx -path '*/kidxlib/*' -name __pycache__ -exec chmod -R a+rwX {} +

USER 1001
ENTRYPOINT ["/opt/kidx/bin/kidx"]

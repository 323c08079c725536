"""What the control records of KRaft's own log say.

Sources: `ControlRecordUtils` and the generated messages, all of which are read as version 0, whatever version they
give.
"""

from __future__ import annotations

from typing import Any, Final

from kidxlib.records.accessor import Accessor


def leader_change(value: Accessor) -> dict[str, Any]:
    version, leader_id = value.number(2), value.number(4)

    def voter() -> dict[str, Any]:
        voter_id = value.number(4)
        value.pass_over_tagged_fields()
        if version < 1:
            return {"voterId": voter_id}
        return {"voterId": voter_id, "voterDirectoryId": _NO_UUID}  # which is not read, yet written

    voters, granting_voters = value.array(voter), value.array(voter)
    value.pass_over_tagged_fields()
    return {"version": version, "leaderId": leader_id, "voters": voters, "grantingVoters": granting_voters}


_NO_UUID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


def snapshot_header(value: Accessor) -> dict[str, Any]:
    fields = {"version": value.number(2), "lastContainedLogTimestamp": value.number(8)}
    value.pass_over_tagged_fields()
    return fields


def snapshot_footer(value: Accessor) -> dict[str, Any]:
    fields = {"version": value.number(2)}
    value.pass_over_tagged_fields()
    return fields


def kraft_version(value: Accessor) -> dict[str, Any]:
    fields = {"version": value.number(2), "kRaftVersion": value.number(2)}
    value.pass_over_tagged_fields()
    return fields


def kraft_voters(value: Accessor) -> dict[str, Any]:
    def endpoint() -> dict[str, Any]:
        fields = {"name": value.text(), "host": value.text(), "port": value.number(2, signed=False)}
        value.pass_over_tagged_fields()
        return fields

    def voter() -> dict[str, Any]:
        voter_id, directory_id, endpoints = value.number(4), value.uuid(), value.array(endpoint)
        feature = {"minSupportedVersion": value.number(2), "maxSupportedVersion": value.number(2)}
        value.pass_over_tagged_fields()
        value.pass_over_tagged_fields()
        return {
            "voterId": voter_id,
            "voterDirectoryId": directory_id,
            "endpoints": endpoints,
            "kRaftVersionFeature": feature,
        }

    version, voters = value.number(2), value.array(voter)
    value.pass_over_tagged_fields()
    return {"version": version, "voters": voters}

"""`recover`: a crashed broker's log dirs are made ready for its next start, which then need not read them. `recover`
has the steps. A `recovery_plan` of the `stopped_broker` has one `forecast` for each partition, from its logs
(`read_logs`; `page_cache` says which need not be read), and `refusals` say why it cannot be applied. `mend` puts small
files in place, `make_ready` does the rest; `log_cutter` alone cuts logs. `fleet` forecasts the starts of a whole fleet.
"""

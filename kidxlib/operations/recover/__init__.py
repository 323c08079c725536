"""`recover`: a crashed broker's log dirs are made ready for its next start, which then need not read them. `recover`
has the steps. `stopped_broker` lists the log dirs, and says how the broker stopped. For each partition, `forecast` says
what the start would do and drop: from its logs (`read_logs`, small ones together), or from headers alone where the
`page_cache` can be trusted, by the kernel's log. `recovery_plan` puts the forecasts together, with absent partitions
and what is lost; `refusals` say why it cannot be applied. Applying it, `mend` puts small files in place, and
`make_ready` cuts logs, keeps copies, and rebuilds the rest; the cut of one log is in `log_cutter`. `fleet` forecasts
the starts of a whole fleet.
"""

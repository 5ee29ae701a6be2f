//! Every metric family of the router: the one place for its name, type, labels, unit and help.
//!
//! `docs/metrics.md` is made from these tables.

use service::families;

families! {
    /// Families of `/metrics` on the admin port.
    pub(super) mod router {
        /// 1 while a signal moves the adaptive limit; without one it stands still.
        ADAPTIVE_HAS_SIGNAL = gauge "llm_router_adaptive_has_signal" [route, model] Flag;
        /// Adaptive concurrency limit of a pool: the stored value, else the start point.
        ADAPTIVE_LIMIT = gauge "llm_router_adaptive_limit" [route, model] Count;
        /// Ceiling of the adaptive limit.
        ADAPTIVE_LIMIT_MAX = gauge "llm_router_adaptive_limit_max" [route, model] Count;
        /// Floor of the adaptive limit.
        ADAPTIVE_LIMIT_MIN = gauge "llm_router_adaptive_limit_min" [route, model] Count;
        /// Requests that asked for a model by an alias, by the asked-for name and the served model.
        ALIASED = counter "llm_router_aliased" [route, asked, model] Count;
        /// From sending a record to its acknowledgement, the longest wait of each acknowledgement.
        BODYLOG_CAPTURE_ACK_SECONDS = histogram "llm_router_bodylog_capture_ack_seconds" [] Seconds;
        /// 1 while the listener is connected.
        BODYLOG_CAPTURE_CONNECTED = gauge "llm_router_bodylog_capture_connected" [] Flag;
        /// Records lost, by reason.
        BODYLOG_CAPTURE_DROPPED = counter "llm_router_bodylog_capture_dropped" [reason] Count;
        /// Records of exchanges: queued for delivery, stored by the listener, lost before or after
        /// they were queued.
        BODYLOG_CAPTURE_FRAMES = counter "llm_router_bodylog_capture_frames" [result] Count;
        /// Bytes that records hold in memory.
        BODYLOG_CAPTURE_MEMORY_BYTES = gauge "llm_router_bodylog_capture_memory_bytes" [] Bytes;
        /// Most bytes that records may hold in memory.
        BODYLOG_CAPTURE_MEMORY_LIMIT_BYTES = gauge "llm_router_bodylog_capture_memory_limit_bytes" [] Bytes;
        /// Connections to the listener that were tried after the first.
        BODYLOG_CAPTURE_RECONNECTS = counter "llm_router_bodylog_capture_reconnects" [] Count;
        /// Records queued without bodies or headers for want of room.
        BODYLOG_CAPTURE_SHED = counter "llm_router_bodylog_capture_shed" [] Count;
        /// Bytes on disk that wait for the listener.
        BODYLOG_CAPTURE_SPOOL_BYTES = gauge "llm_router_bodylog_capture_spool_bytes" [] Bytes;
        /// Most bytes that may wait on disk; 0 without a spool.
        BODYLOG_CAPTURE_SPOOL_LIMIT_BYTES = gauge "llm_router_bodylog_capture_spool_limit_bytes" [] Bytes;
        /// How long the oldest record that is not acknowledged has waited.
        BODYLOG_CAPTURE_UNACKED_AGE_SECONDS = gauge "llm_router_bodylog_capture_unacked_age_seconds" [] Seconds;
        /// Bytes of spool segments that could not be read as frames.
        BODYLOG_SPOOL_DAMAGED_BYTES = counter "llm_router_bodylog_spool_damaged_bytes" [] Bytes;
        /// 1 while the configured spool is open, 0 while records wait in memory only; absent
        /// without a spool.
        BODYLOG_SPOOL_UP = gauge "llm_router_bodylog_spool_up" [] Flag;
        /// Request body bytes held in memory.
        BUFFERED_BYTES = gauge "llm_router_buffered_bytes" [] Bytes;
        /// Most request body bytes held in memory.
        BUFFERED_BYTES_LIMIT = gauge "llm_router_buffered_bytes_limit" [] Bytes;
        /// What is running.
        BUILD = info "llm_router_build" [version] Flag;
        /// Of the prompt tokens, those that a peer read from its prefix cache; never more.
        CACHED_TOKENS = counter "llm_router_cached_tokens" [route, peer] Tokens;
        /// Requests whose client went away, before the answer began or in its middle.
        CLIENTS_GONE = counter "llm_router_clients_gone" [route] Count;
        /// Five-minute average of a pool's requests in flight.
        CLUSTER_AVG = gauge "llm_router_cluster_avg" [route, model] Count;
        /// 1 when the last load found every file valid.
        CONFIG_LAST_RELOAD_SUCCESS = gauge "llm_router_config_last_reload_success" [] Flag;
        /// When a load last found every file valid, Unix time.
        CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS = gauge "llm_router_config_last_reload_success_timestamp_seconds" [] UnixSeconds;
        /// Loads of the configuration, the one at start included.
        CONFIG_RELOADS = counter "llm_router_config_reloads" [result] Count;
        /// Connections of clients on the public port that have sent something.
        CONNECTIONS = gauge "llm_router_connections" [] Count;
        /// Most connections of clients that the public port serves.
        CONNECTIONS_LIMIT = gauge "llm_router_connections_limit" [] Count;
        /// Connections that were not served: beyond a limit, silent for too long, or without a file
        /// descriptor.
        CONNECTIONS_REJECTED = counter "llm_router_connections_rejected" [reason] Count;
        /// Requests handed to another route by `fallback`, by the route that they went to.
        FALLBACKS = counter "llm_router_fallbacks" [route, to] Count;
        /// Findings in force, as /_findings names them. No series while nothing is wrong.
        FINDINGS = gauge "llm_router_findings" [code, severity] Count;
        /// Requests reserved on a peer and not finished.
        IN_FLIGHT = gauge "llm_router_in_flight" [route, peer] Count;
        /// Time between two chunks of a stream.
        INTER_CHUNK_SECONDS = histogram "llm_router_inter_chunk_seconds" [route] Seconds;
        /// 1 for what the last read of the key file found.
        KEY_FILE_STATUS = gauge "llm_router_key_file_status" [status] Flag;
        /// Concurrency limit of a pool in force: the sum over the active tier's unbanned peers, or
        /// the adaptive limit below it, before rt_limit_factor.
        LIMIT = gauge "llm_router_limit" [route, model] Count;
        /// rt_limit_factor: multiplies llm_router_limit before requests in flight are compared with
        /// it.
        LIMIT_FACTOR = gauge "llm_router_limit_factor" [route] Count;
        /// Lines of stdout and stderr lost because their reader was too slow or gone.
        LOG_LINES_DROPPED = counter "llm_router_log_lines_dropped" [] Count;
        /// The router's own share of a request: from its body read to handing it to a peer.
        OVERHEAD_SECONDS = histogram "llm_router_overhead_seconds" [route] Seconds;
        /// 1 while a switch or a limit is set, or a peer's units are held back, on the running
        /// router.
        OVERRIDE_ACTIVE = gauge "llm_router_override_active" [route, switch] Flag;
        /// Attempts at a peer that have ended, by what they say of it: served, a kind of failure, or
        /// abandoned by a client before the first byte. Generated health checks count too.
        PEER_ATTEMPTS = counter "llm_router_peer_attempts" [route, peer, outcome] Count;
        /// Times a peer went from usable to banned.
        PEER_BANS = counter "llm_router_peer_bans" [route, peer] Count;
        /// Times a peer was ejected because its requests failed or hung.
        PEER_EJECTIONS = counter "llm_router_peer_ejections" [route, peer] Count;
        /// How long requests have waited for a first byte of a peer without anybody getting one; 0
        /// while nobody waits.
        PEER_FIRST_BYTE_WAIT_SECONDS = gauge "llm_router_peer_first_byte_wait_seconds" [route, peer] Seconds;
        /// 1 while a peer's last load sample is recent, or where it is not polled.
        PEER_FRESH = gauge "llm_router_peer_fresh" [route, peer] Flag;
        /// 1 while an enabled peer may get requests: it is not banned, ejected, stale or being probed.
        PEER_HEALTHY = gauge "llm_router_peer_healthy" [route, peer] Flag;
        /// 1 while a peer is alive, too busy to be read, and taken for full.
        PEER_HELD = gauge "llm_router_peer_held" [route, peer] Flag;
        /// Requests on a peer: the router's own, and others' where its engine is polled.
        PEER_LOAD = gauge "llm_router_peer_load" [route, peer] Count;
        /// 1 for what the last health probe of a peer found.
        PEER_PROBE = gauge "llm_router_peer_probe" [route, peer, result] Flag;
        /// How long ago the last health probe of a peer ended.
        PEER_PROBE_AGE_SECONDS = gauge "llm_router_peer_probe_age_seconds" [route, peer] Seconds;
        /// How long the health probes of a peer have had no answer; 0 while they are answered.
        PEER_PROBE_SILENT_SECONDS = gauge "llm_router_peer_probe_silent_seconds" [route, peer] Seconds;
        /// Requests a peer runs at once, as placement takes it.
        PEER_SLOTS = gauge "llm_router_peer_slots" [route, peer] Count;
        /// 1 for the state in which a peer is because of what became of its requests.
        PEER_STATE = gauge "llm_router_peer_state" [route, peer, state] Flag;
        /// 1 while a peer is suspect: it gives no first byte and gets no new sessions.
        PEER_SUSPECT = gauge "llm_router_peer_suspect" [route, peer] Flag;
        /// Finished requests that were placed, by how their peer was found (X-Routed-Mode).
        PLACEMENTS = counter "llm_router_placements" [route, mode] Count;
        /// Polls of an engine's load, by what they found.
        POLLS = counter "llm_router_polls" [route, peer, result] Count;
        /// Requests of an owner that run or wait, over all routes; only with limits of owners, at most
        /// 200 owners.
        OWNER_IN_FLIGHT = gauge "llm_router_owner_in_flight" [owner] Count;
        /// Requests refused by the limits of their owner (`concurrency`, `rate`).
        OWNER_REFUSALS = counter "llm_router_owner_refusals" [owner, reason] Count;
        /// How old the peers of a source (`peers_from`) are; absent before it first gave some.
        PEER_SOURCE_AGE_SECONDS = gauge "llm_router_peer_source_age_seconds" [route] Seconds;
        /// Questions to the source of a route's peers that failed; its last peers stay.
        PEER_SOURCE_ERRORS = counter "llm_router_peer_source_errors" [route] Count;
        /// Peers that the source of a route gave last.
        PEER_SOURCE_PEERS = gauge "llm_router_peer_source_peers" [route] Count;
        /// Requests in flight on the peers that the limit counts.
        POOL_IN_FLIGHT = gauge "llm_router_pool_in_flight" [route, model] Count;
        /// Answers that the route's postprocess handler was meant for; passed: too long, or in an
        /// encoding that is not decoded.
        POSTPROCESSED = counter "llm_router_postprocessed" [route, result] Count;
        /// Tokens of whole prompts, cached ones included, by the peer that answered.
        PROMPT_TOKENS = counter "llm_router_prompt_tokens" [route, peer] Tokens;
        /// Requests let through that tripped a gate while load_rate_limit was off. Never part of
        /// the refusals.
        RATE_LIMIT_TRIPS = counter "llm_router_rate_limit_trips" [route, gate] Count;
        /// Requests refused, by gate and by the first turn of their session_prio bucket.
        REFUSALS = counter "llm_router_refusals" [route, gate, bucket] Count;
        /// Arrival of a request to the last byte of its answer.
        REQUEST_SECONDS = histogram "llm_router_request_seconds" [route] Seconds;
        /// Requests finished, by the status sent to the client.
        REQUESTS = counter "llm_router_requests" [route, model, peer, code] Count;
        /// Attempts that failed on a peer and went on to another.
        RETRIES = counter "llm_router_retries" [route, peer] Count;
        /// 1 while a route's file on disk is the version in force.
        ROUTE_VALID = gauge "llm_router_route_valid" [route] Flag;
        /// Requests placed on a peer, by balance and by why; a retry elsewhere is not counted
        /// again.
        SELECTED = counter "llm_router_selected" [route, peer, strategy, reason] Count;
        /// Requests without a usable session header while session_prio was on.
        SESSION_PRIO_NOHDR = counter "llm_router_session_prio_nohdr" [route, result] Count;
        /// Requests graded by their session's turn, by the first turn of the bucket.
        SESSION_PRIO_REQUESTS = counter "llm_router_session_prio_requests" [route, bucket, result] Count;
        /// Prompt tokens of graded requests, and how many of them came from a cache.
        SESSION_PRIO_TOKENS = counter "llm_router_session_prio_tokens" [route, bucket, kind] Tokens;
        /// Sessions remembered; placement by hash remembers none.
        SESSIONS = gauge "llm_router_sessions" [route] Count;
        /// Remembered sessions pushed out by max_sessions.
        SESSIONS_EVICTED = counter "llm_router_sessions_evicted" [route, model] Count;
        /// Remembered sessions that were idle for session_ttl.
        SESSIONS_EXPIRED = counter "llm_router_sessions_expired" [route, model] Count;
        /// Tokens of the answers that told their usage.
        TOKENS = counter "llm_router_tokens" [route, model, owner, kind] Tokens;
        /// Smoothed decode rate of a pool, tokens per second; NaN while nothing was measured
        /// lately.
        TPS_EWMA = gauge "llm_router_tps_ewma" [route, model, metric] TokensPerSecond;
        /// At this average the decode rate gate refuses; 0 without a threshold.
        TPS_THRESHOLD = gauge "llm_router_tps_threshold" [route, model, metric] TokensPerSecond;
        /// 1 while the decode rate gate refuses, probe slots aside.
        TPS_TRIPPED = gauge "llm_router_tps_tripped" [route, model] Flag;
        /// Arrival of a request to the first body byte of a peer's answer.
        TTFB_SECONDS = histogram "llm_router_ttfb_seconds" [route] Seconds;
        /// Smoothed time to first token of a pool; NaN while nothing was measured lately.
        TTFT_EWMA_SECONDS = gauge "llm_router_ttft_ewma_seconds" [route, model, metric] Seconds;
        /// Arrival of a request to the first event of its stream with generated content.
        TTFT_SECONDS = histogram "llm_router_ttft_seconds" [route] Seconds;
        /// At this average the TTFT gate refuses; +Inf without a threshold.
        TTFT_THRESHOLD_SECONDS = gauge "llm_router_ttft_threshold_seconds" [route, model, metric] Seconds;
        /// 1 while the TTFT gate refuses, probe slots aside.
        TTFT_TRIPPED = gauge "llm_router_ttft_tripped" [route, model] Flag;
        /// Waits for a slot of a full pool, however they ended.
        WAIT_SECONDS = histogram "llm_router_wait_seconds" [route] Seconds;
        /// Requests that wait for a slot of a full pool.
        WAITING = gauge "llm_router_waiting" [route, model] Count;
    }
}

families! {
    /// The operating system's numbers about the process, under the names that all client libraries use.
    pub(super) mod process {
        /// User and system CPU time spent.
        CPU_SECONDS = counter "process_cpu_seconds" [] Seconds;
        /// Limit of open file descriptors.
        MAX_FDS = gauge "process_max_fds" [] Count;
        /// Open file descriptors.
        OPEN_FDS = gauge "process_open_fds" [] Count;
        /// Resident memory.
        RESIDENT_MEMORY_BYTES = gauge "process_resident_memory_bytes" [] Bytes;
        /// When the process started, Unix time.
        START_TIME_SECONDS = gauge "process_start_time_seconds" [] UnixSeconds;
        /// Virtual memory.
        VIRTUAL_MEMORY_BYTES = gauge "process_virtual_memory_bytes" [] Bytes;
    }
}

families! {
    /// Families of `/proxy/metrics` on the public port.
    pub(super) mod proxy {
        /// Requests that the engine said it had, whoever sent them.
        BACKEND_BUSY = gauge "proxy_backend_busy" [route, backend] Count;
        /// Those of the engine's requests that others sent.
        BACKEND_EXTERNAL = gauge "proxy_backend_external" [route, backend] Count;
        /// 1 while its last sample is recent, or where it is not polled.
        BACKEND_FRESH = gauge "proxy_backend_fresh" [route, backend] Flag;
        /// 1 while it is alive, too busy to be read, and taken for full.
        BACKEND_HELD = gauge "proxy_backend_held" [route, backend] Flag;
        /// How long it has had nothing to do; absent when it never had.
        BACKEND_IDLE_SECONDS = gauge "proxy_backend_idle_seconds" [route, backend] Seconds;
        /// The router's own requests on it.
        BACKEND_IN_FLIGHT = gauge "proxy_backend_in_flight" [route, backend] Count;
        /// What placement compares.
        BACKEND_LOAD = gauge "proxy_backend_load" [route, backend] Count;
        /// Polls of an engine's load, by what they found.
        BACKEND_POLLS = counter "proxy_backend_polls" [route, backend, result] Count;
        /// Age of its last sample.
        BACKEND_SAMPLE_AGE_SECONDS = gauge "proxy_backend_sample_age_seconds" [route, backend] Seconds;
        /// Requests it runs at once, as placement takes it.
        BACKEND_SLOTS = gauge "proxy_backend_slots" [route, backend] Count;
        /// Requests it runs at once, as the engine says.
        BACKEND_SLOTS_REPORTED = gauge "proxy_backend_slots_reported" [route, backend] Count;
        /// Requests that no peer was chosen for, by the error's code.
        REJECTED = counter "proxy_rejected" [route, reason] Count;
        /// Arrival of a request to the last byte of its answer.
        REQUEST_SECONDS = histogram "proxy_request_seconds" [route] Seconds;
        /// Requests finished, by the status sent to the client.
        REQUESTS = counter "proxy_requests" [route, code] Count;
        /// Requests placed on a peer, by balance and by why; a retry elsewhere is not counted
        /// again.
        SELECTED = counter "proxy_selected" [route, backend, strategy, reason] Count;
        /// Sessions that live on it, where they are remembered.
        SESSIONS = gauge "proxy_sessions" [route, backend] Count;
        /// Remembered sessions pushed out by max_sessions.
        SESSIONS_EVICTED = counter "proxy_sessions_evicted" [route, model] Count;
        /// Remembered sessions that were idle for session_ttl.
        SESSIONS_EXPIRED = counter "proxy_sessions_expired" [route, model] Count;
        /// Arrival of a request to the first body byte of a peer's answer.
        TTFB_SECONDS = histogram "proxy_ttfb_seconds" [route] Seconds;
        /// Waits for a slot of a full pool, however they ended.
        WAIT_SECONDS = histogram "proxy_wait_seconds" [route] Seconds;
        /// Requests that wait for a slot of a full pool.
        WAITING = gauge "proxy_waiting" [route] Count;
    }
}

//! Every metric family of the exporter: the one place for its name, type, labels, unit and help.
//!
//! `docs/metrics.md` is made from these tables.

use service::families;

/// How the names of the polled families begin in this catalogue.
pub(super) const POLL_PREFIX: &str = "openresty_";

families! {
    /// The exporter about itself.
    pub(super) mod own {
        /// Lines that were not counted as rows.
        BAD_LINES = counter "bodylog_exporter_bad_lines" [kind] Count;
        /// What is running.
        BUILD = info "bodylog_exporter_build" [version] Flag;
        /// Rows whose label value had no place and became other.
        CAPPED = counter "bodylog_exporter_capped" [label] Count;
        /// Size of the checkpoint.
        CHECKPOINT_BYTES = gauge "bodylog_exporter_checkpoint_bytes" [] Bytes;
        /// Checkpoints that could not be written, since the start.
        CHECKPOINT_ERRORS = counter "bodylog_exporter_checkpoint_errors" [] Count;
        /// Starts from the older checkpoint.
        CHECKPOINT_FALLBACKS = counter "bodylog_exporter_checkpoint_fallbacks" [] Count;
        /// Starts without a checkpoint.
        COLD_STARTS = counter "bodylog_exporter_cold_starts" [] Count;
        /// Connections on the HTTP port that have sent something.
        CONNECTIONS = gauge "bodylog_exporter_connections" [] Count;
        /// Connections that were not served: beyond the limit, silent for too long, or without a
        /// file descriptor.
        CONNECTIONS_REJECTED = counter "bodylog_exporter_connections_rejected" [reason] Count;
        /// Rows that had been counted before.
        DUPLICATES = counter "bodylog_exporter_duplicates" [] Count;
        /// Files that had to be taken up anew.
        FILE_RESETS = counter "bodylog_exporter_file_resets" [cause] Count;
        /// Bytes not read yet, about.
        LAG_BYTES = gauge "bodylog_exporter_lag_bytes" [] Bytes;
        /// When counts were last safe on disk, Unix time.
        LAST_COMMIT_SECONDS = gauge "bodylog_exporter_last_commit_seconds" [] UnixSeconds;
        /// End of the newest row, Unix time.
        LAST_TS_SECONDS = gauge "bodylog_exporter_last_ts_seconds" [] UnixSeconds;
        /// Lines read, bad ones included.
        LINES = counter "bodylog_exporter_lines" [] Count;
        /// Log lines lost because their reader was too slow or gone.
        LOG_LINES_DROPPED = counter "bodylog_exporter_log_lines_dropped" [] Count;
        /// Bytes read of the newest hour.
        OFFSET_BYTES = gauge "bodylog_exporter_offset_bytes" [] Bytes;
        /// Age of the oldest last answer of the route.
        POLL_AGE_SECONDS = gauge "bodylog_exporter_poll_age_seconds" [route] Seconds;
        /// 1 when the call of the last round was answered.
        POLL_UP = gauge "bodylog_exporter_poll_up" [route, endpoint] Flag;
        /// Hours or directories that could not be read, since the start.
        READ_ERRORS = counter "bodylog_exporter_read_errors" [] Count;
        /// Hours that were closed and compressed before they were read to their end.
        RECOVERY = counter "bodylog_exporter_recovery" [] Count;
        /// Series on this page, by metric; a histogram is one.
        SERIES = gauge "bodylog_exporter_series" [metric] Count;
    }
}

families! {
    /// From rows.
    pub(super) mod traffic {
        /// Tokens of prompts that came from a prefix cache.
        CACHED_TOKENS = counter "bodylog_cached_tokens" [service, route, backend, model] Tokens;
        /// Tokens of an answer.
        COMPLETION_TOKENS = histogram "bodylog_completion_tokens" [service, route, backend, model] Tokens;
        /// Tokens of answers.
        COMPLETION_TOKENS_COUNT = counter "bodylog_completion_tokens" [service, route, backend, model] Tokens;
        /// Completion tokens over the time from first to last chunk, of successes that took more
        /// than 0.3 s for it.
        DECODE_OUTPUT_TOK_PER_SECOND = histogram "bodylog_decode_output_tok_per_second" [service, route, backend, model] TokensPerSecond;
        /// Answers by why they ended; none is a 200 that was not seen to end.
        FINISH_REASON = counter "bodylog_finish_reason" [service, route, backend, model, finish_reason] Count;
        /// Completion tokens over the whole request, of at least 16 tokens in 0.5 s, by length of
        /// the prompt.
        OUTPUT_TOK_PER_SECOND = histogram "bodylog_output_tok_per_second" [service, route, backend, model, prompt_bucket] TokensPerSecond;
        /// Completion tokens over the whole request, of successes.
        OVERALL_OUTPUT_TOK_PER_SECOND = histogram "bodylog_overall_output_tok_per_second" [service, route, backend, model] TokensPerSecond;
        /// Tokens of a prompt.
        PROMPT_TOKENS = histogram "bodylog_prompt_tokens" [service, route, backend, model] Tokens;
        /// Tokens of prompts.
        PROMPT_TOKENS_COUNT = counter "bodylog_prompt_tokens" [service, route, backend, model] Tokens;
        /// Tokens of answers that were reasoning.
        REASONING_TOKENS = counter "bodylog_reasoning_tokens" [service, route, backend, model] Tokens;
        /// Requests the router refused itself.
        REJECTS = counter "bodylog_rejects" [route, status, reason] Count;
        /// Bytes of request bodies.
        REQ_BYTES = counter "bodylog_req_bytes" [service, route, backend, model] Bytes;
        /// Requests recorded.
        REQUESTS = counter "bodylog_requests" [service, route, backend, model, status_class, stream] Count;
        /// Bytes of response bodies.
        RESP_BYTES = counter "bodylog_resp_bytes" [service, route, backend, model] Bytes;
        /// Attempts beyond the first.
        RETRIES = counter "bodylog_retries" [service, route, backend, model] Count;
        /// Waiting for a slot and connecting to the peer.
        ROUTER_OVERHEAD_SECONDS = histogram "bodylog_router_overhead_seconds" [service, route, backend, model] Seconds;
        /// Arrival of a request to the end of its answer.
        RT_SECONDS = histogram "bodylog_rt_seconds" [service, route, backend, model, stream] Seconds;
        /// Requests recorded, by owner of the key.
        TENANT_REQUESTS = counter "bodylog_tenant_requests" [service, route, tenant] Count;
        /// Tokens, by owner of the key and kind.
        TENANT_TOKENS = counter "bodylog_tenant_tokens" [service, route, tenant, kind] Tokens;
        /// Tokens of prompts and answers.
        TOTAL_TOKENS = counter "bodylog_total_tokens" [service, route, backend, model] Tokens;
        /// Time per output token after the first, of streams.
        TPOT_SECONDS = histogram "bodylog_tpot_seconds" [service, route, backend, model] Seconds;
        /// Answers that are not whole: cut by the engine (no_finish) or the client (client_abort),
        /// or stored in part (capture).
        TRUNCATED = counter "bodylog_truncated" [service, route, backend, model, cause] Count;
        /// Arrival of a request to the first generated token of its stream, or to its first chunk where
        /// the row has no token time; by length of the prompt.
        TTFT_SECONDS = histogram "bodylog_ttft_seconds" [service, route, backend, model, prompt_bucket] Seconds;
        /// Successful requests whose answer names no tokens.
        USAGE_MISSING = counter "bodylog_usage_missing" [service, route, backend, model] Count;
    }
}

families! {
    /// What the cluster reports.
    pub(super) mod cluster {
        /// Answers of the cluster's API server that were not as they should be, since the start.
        ROUTE_RESOLVER_ERRORS = counter "bodylog_route_resolver_errors" [] Count;
        /// Addresses that map to a route, those that went within 15 minutes included.
        ROUTE_RESOLVER_PODS = gauge "bodylog_route_resolver_pods" [] Count;
        /// Routes that routers can be asked about.
        ROUTE_RESOLVER_ROUTES = gauge "bodylog_route_resolver_routes" [] Count;
        /// 1 while the cluster's API server answers for every route.
        ROUTE_RESOLVER_UP = gauge "bodylog_route_resolver_up" [] Flag;
        /// Endpoints of the service.
        SERVICE_REPLICAS = gauge "bodylog_service_replicas" [service, route] Count;
        /// Replicas that the topmost owner of the service's pods wants.
        SERVICE_REPLICAS_DESIRED = gauge "bodylog_service_replicas_desired" [service, route] Count;
        /// Endpoints of the service that are ready.
        SERVICE_REPLICAS_READY = gauge "bodylog_service_replicas_ready" [service, route] Count;
    }
}

families! {
    /// What routers report, under llm-openresty's names. `--poll-prefix` replaces [`POLL_PREFIX`].
    /// With several routers each has a label `router` after `route`.
    pub(super) mod polled {
        /// Adaptive concurrency limit.
        ADAPTIVE_CC = gauge "openresty_adaptive_cc" [service, route, model] Count;
        /// Requests in flight as it reads them.
        ADAPTIVE_CC_CONC = gauge "openresty_adaptive_cc_conc" [service, route, model] Count;
        /// Its ceiling.
        ADAPTIVE_CC_MAX = gauge "openresty_adaptive_cc_max" [service, route, model] Count;
        /// Its floor.
        ADAPTIVE_CC_MIN = gauge "openresty_adaptive_cc_min" [service, route, model] Count;
        /// Refusals it has not used yet.
        ADAPTIVE_CC_REJ = gauge "openresty_adaptive_cc_rej" [service, route, model] Count;
        /// Requests on the peer.
        PEER_ACTIVE_CONNS = gauge "openresty_peer_active_conns" [service, route, peer, name, priority] Count;
        /// 1 while the peer is banned.
        PEER_BANNED = gauge "openresty_peer_banned" [service, route, peer, name, priority] Flag;
        /// Most requests the peer may have.
        PEER_MAX_CONCURRENCY = gauge "openresty_peer_max_concurrency" [service, route, peer, name, priority] Count;
        /// Rounds in which some call was not answered.
        POLL_ERRORS = counter "openresty_poll_errors" [] Count;
        /// When every call of a round was last answered, Unix time.
        POLL_LAST_SUCCESS_SECONDS = gauge "openresty_poll_last_success_seconds" [] UnixSeconds;
        /// 1 when every call of the last round was answered.
        POLL_UP = gauge "openresty_poll_up" [] Flag;
        /// Requests refused, as the routers count.
        REJECTED = counter "openresty_rejected" [service, route, reason] Count;
        /// Priority of the tier in use.
        ROUTE_ACTIVE_LEVEL = gauge "openresty_route_active_level" [service, route] Count;
        /// Room of the tier in use, requests.
        ROUTE_ACTIVE_LIMIT = gauge "openresty_route_active_limit" [service, route] Count;
        /// Usable peers of the tier in use.
        ROUTE_HEALTHY_PEERS = gauge "openresty_route_healthy_peers" [service, route] Count;
        /// Average output rate, tokens per second.
        TPS_EWMA = gauge "openresty_tps_ewma" [service, route, model] TokensPerSecond;
        /// 1 while the output rate is watched.
        TPS_LIMITER_ACTIVE = gauge "openresty_tps_limiter_active" [service, route] Flag;
        /// Average time to the first token, milliseconds.
        TTFT_EWMA_MS = gauge "openresty_ttft_ewma_ms" [service, route, model] Milliseconds;
        /// 1 while the time to the first token is watched.
        TTFT_LIMITER_ACTIVE = gauge "openresty_ttft_limiter_active" [service, route] Flag;
    }
}

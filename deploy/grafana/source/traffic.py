"""The board "LLM traffic": who asks, how fast the answers are, and which gate refuses by which number at which peer."""

from board import *

R = 'route=~"$route"'
RM = 'route=~"$route",model=~"$model"'
RP = 'route=~"$route",peer=~"$peer"'
RMP = 'route=~"$route",model=~"$model",peer=~"$peer"'
# The exporter's series call a peer `backend`; `(none)` where the router refused before it chose one.
BODY = 'route=~"$route",model=~"$model",backend=~"$peer"'

FAILED = 'code=~"5.."'
# An objective of five seconds to the first token for 95 % of streams: deploy/prometheus/rules/router.yml.
OBJECTIVE = 0.95


def share(part, whole):
    return f"{part} / ({whole} > 0)"


def engine(*names, how="sum", by="instance"):
    """The same number under the names of several engines."""
    return " or ".join(f"{how} by ({by}) ({name})" for name in names)


NOW = Row("Now", [
    stat("Requests", "Finished requests, refused ones included.", "reqps", over("llm_router_requests_total", RMP)),
    stat(
        "Refused for load", "Share of requests refused by a load gate. Below: which gate, and by which number.", "percentunit",
        share(over("llm_router_refusals_total", R + ',gate!="rule"'), over("llm_router_requests_total", R)),
        steps=[(0.01, AMBER), (0.05, RED)], noValue="0 %",
    ),
    stat(
        "Failed", "Share of requests that ended with a 5xx.", "percentunit",
        f'(sum (rate(llm_router_requests_total{{{RMP},{FAILED}}}[{OVER}])) or vector(0)) / ({over("llm_router_requests_total", RMP)} > 0)',
        steps=[(0.01, AMBER), (0.05, RED)], noValue="0 %",
    ),
    stat("TTFT, 95th percentile", "Arrival of a request to the first byte of its stream; 95 % were faster.", "s", quantile(0.95, "llm_router_ttft_seconds", R), steps=[(2, AMBER), (5, RED)]),
    stat("Output", "Completion tokens of the answers that told their usage.", "short", over("llm_router_tokens_total", RM + ',kind="completion"'), decimals=0),
    stat("In flight", "Requests that peers are working on for these routers.", "short", f"sum (llm_router_in_flight{{{RP}}})"),
    stat("Peers down", "Enabled peers that some router has banned. A peer that several routers or routes have banned counts once.", "short", f"sum (max by (peer) (1 - llm_router_peer_healthy{{{RP}}}))", steps=[(1, RED)]),
    stat("Overrides", "Switches and limits set on running routers that the files do not know.", "short", f"sum (llm_router_override_active{{{R}}})", steps=[(1, AMBER)]),
])

WHY = Row("Why are requests refused?", [
    graph(
        "Refusals by gate", "Which gate refuses. `concurrency`: the pool is full; `ttft`, `tps`: it is slow; `rule`: a content rule matched. The three panels beside and below show each gate's number beside its limit.", "reqps",
        (over("llm_router_refusals_total", R, "route, gate"), "{{route}} {{gate}}"),
    ),
    graph(
        "Concurrency: in flight beside the limit", "What the concurrency gate compares, on each router: requests in flight on the pool's active tier, and the limit (times rt_limit_factor). A limit of 0 means that no peer is left.", "short",
        (f"llm_router_pool_in_flight{{{RM}}}", "{{route}} {{model}} in flight ({{instance}})"),
        (f"llm_router_limit{{{RM}}} * on (instance, route) group_left () llm_router_limit_factor", "{{route}} {{model}} limit ({{instance}})"),
        overrides=[dashed(".* limit .*")],
    ),
    states(
        "Gates shut", "When each gate refused. Green: open.",
        (f"max by (route, model) (llm_router_ttft_tripped{{{RM}}})", "{{route}} {{model}} ttft"),
        (f"max by (route, model) (llm_router_tps_tripped{{{RM}}})", "{{route}} {{model}} tps"),
        (f"max by (route, model) (llm_router_pool_in_flight{{{RM}}} >= bool llm_router_limit * on (instance, route) group_left () llm_router_limit_factor)", "{{route}} {{model}} full"),
        words={0: "open", 1: "shut"},
    ),
    graph(
        "TTFT: average beside the threshold", "What the TTFT gate compares: the smoothed time to first token of a pool, and its threshold. No line: nothing was measured lately, or no threshold is set.", "s",
        (f"llm_router_ttft_ewma_seconds{{{RM}}}", "{{route}} {{model}} {{metric}} ({{instance}})"),
        (f"llm_router_ttft_threshold_seconds{{{RM}}} < +Inf", "{{route}} {{model}} {{metric}} threshold ({{instance}})"),
        overrides=[dashed(".* threshold .*")],
    ),
    graph(
        "Decode rate: average beside the threshold", "What the TPS gate compares, tokens per second of one request. It refuses at or below the threshold; with adaptive_cc the limit shrinks instead.", "short",
        (f"llm_router_tps_ewma{{{RM}}}", "{{route}} {{model}} {{metric}} ({{instance}})"),
        (f"llm_router_tps_threshold{{{RM}}} > 0", "{{route}} {{model}} {{metric}} threshold ({{instance}})"),
        overrides=[dashed(".* threshold .*")],
    ),
    graph(
        "Refusals by turn", "Load refusals by the first turn of the session's bucket; `-`: session_prio was off. New conversations should be refused before old ones.", "reqps",
        (over("llm_router_refusals_total", R + ',gate!="rule"', "route, bucket"), "{{route}} turn {{bucket}}"),
        stack=True,
    ),
    table(
        "Which number: every pool now", "What each gate compares, for every pool of every router.",
        [
            ("In flight", "short", f"sum by (instance, route, model) (llm_router_pool_in_flight{{{RM}}})"),
            ("Limit", "short", f"sum by (instance, route, model) (llm_router_limit{{{RM}}})"),
            ("Waiting", "short", f"sum by (instance, route, model) (llm_router_waiting{{{RM}}})"),
            ("TTFT average", "s", f"max by (instance, route, model) (llm_router_ttft_ewma_seconds{{{RM}}})"),
            ("TTFT threshold", "s", f"min by (instance, route, model) (llm_router_ttft_threshold_seconds{{{RM}}})"),
            ("Decode rate", "short", f"min by (instance, route, model) (llm_router_tps_ewma{{{RM}}})"),
            ("Decode rate threshold", "short", f"max by (instance, route, model) (llm_router_tps_threshold{{{RM}}})"),
        ],
        width=12,
    ),
    table(
        "Which peer: every peer now", "What each peer carries and how its requests end.",
        [
            ("Healthy", "short", f"min by (route, peer) (llm_router_peer_healthy{{{RP}}})"),
            ("In flight", "short", f"sum by (route, peer) (llm_router_in_flight{{{RP}}})"),
            ("Load", "short", f"max by (route, peer) (llm_router_peer_load{{{RP}}})"),
            ("Slots", "short", f"max by (route, peer) (llm_router_peer_slots{{{RP}}})"),
            ("Requests", "reqps", over("llm_router_requests_total", RMP, "route, peer")),
            ("Attempts that failed", "reqps", over("llm_router_retries_total", RP, "route, peer")),
            ("Bans in an hour", "short", f"sum by (route, peer) (increase(llm_router_peer_bans_total{{{RP}}}[1h]))"),
        ],
        width=12,
    ),
    graph(
        "Waiting for a slot", "Requests that wait because their pool is full (`full_policy: wait`).", "short",
        (f"sum by (route, model) (llm_router_waiting{{{RM}}})", "{{route}} {{model}}"), width=8,
    ),
    graph(
        "Would have been refused", "Trips of gates while the master switch `rate-limit` is off: what would be refused if it were on.", "reqps",
        (over("llm_router_rate_limit_trips_total", R, "route, gate"), "{{route}} {{gate}}"), width=8,
    ),
    graph(
        "Overrides in force", "Switches and limits set on running routers. `llmctl status` shows how long they last.", "short",
        (f"sum by (route, switch) (llm_router_override_active{{{R}}}) > 0", "{{route}} {{switch}}"), width=8,
    ),
])

TRAFFIC = Row("Traffic", [
    graph("Requests by status", "Finished requests by the status the client got; 499: it left before one was sent.", "reqps", (over("llm_router_requests_total", RMP, "code"), "{{code}}"), stack=True),
    graph("Requests by route", "Finished requests of every route.", "reqps", (over("llm_router_requests_total", RMP, "route"), "{{route}}"), stack=True),
    graph("Requests by peer", "Who answered, or was tried last; `-`: nobody was chosen.", "reqps", (over("llm_router_requests_total", RMP, "peer"), "{{peer}}"), stack=True),
    graph("Refused by the router itself", "Requests that no engine saw, by status and reason, as recorded.", "reqps", (over("bodylog_rejects_total", R, "route, status, reason"), "{{route}} {{status}} {{reason}}")),
    graph("Bytes of bodies", "Request and response bodies, as recorded.", "Bps", (over("bodylog_req_bytes_total", BODY), "requests"), (over("bodylog_resp_bytes_total", BODY), "responses")),
    graph("Requests by model", "Finished requests by the model they asked for; `other`: beyond 64 names.", "reqps", (over("llm_router_requests_total", RMP, "model"), "{{model}}"), stack=True),
])

LATENCY = Row("Latency", [
    graph(
        "Time to first token", "Arrival of a request to the first byte of its stream, by route.", "s",
        *[(quantile(q, "llm_router_ttft_seconds", R, "route"), f"{{{{route}}}} p{int(q * 100)}") for q in (0.5, 0.95, 0.99)],
    ),
    graph(
        "Between two chunks", "Time between two chunks of a stream: what a reader sees as speed.", "s",
        *[(quantile(q, "llm_router_inter_chunk_seconds", R, "route"), f"{{{{route}}}} p{int(q * 100)}") for q in (0.5, 0.95, 0.99)],
    ),
    graph(
        "Whole request", "Arrival of a request to the last byte of its answer, by route.", "s",
        *[(quantile(q, "llm_router_request_seconds", R, "route"), f"{{{{route}}}} p{int(q * 100)}") for q in (0.5, 0.9, 0.95, 0.99)],
    ),
    heatmap("Time to first token, distribution", "Streams a second by their time to first token.", "s", buckets("llm_router_ttft_seconds", R)),
    heatmap("Whole request, distribution", "Requests a second by how long they took.", "s", buckets("llm_router_request_seconds", R)),
    graph(
        "The router's own share", "From a request's body read to handing it to a peer. Thousandths of a second; more means that the router's machine is short of CPU.", "s",
        *[(quantile(q, "llm_router_overhead_seconds", R, "route"), f"{{{{route}}}} p{int(q * 100)}") for q in (0.5, 0.99)],
    ),
    graph(
        "TTFT by prompt length", "95th percentile of the time to first token, by thousands of prompt tokens, as recorded.", "s",
        (quantile(0.95, "bodylog_ttft_seconds", BODY, "prompt_bucket"), "{{prompt_bucket}}"),
    ),
    table(
        "TTFT by prompt length, now", "Time to first token by thousands of prompt tokens, as recorded.",
        [(f"p{int(q * 100)}", "s", quantile(q, "bodylog_ttft_seconds", BODY, "prompt_bucket")) for q in (0.5, 0.8, 0.95)],
        width=8,
    ),
    graph(
        "Time per output token", "Streams, from the first chunk to the last, by the tokens after the first, as recorded.", "s",
        *[(quantile(q, "bodylog_tpot_seconds", BODY, "route"), f"{{{{route}}}} p{int(q * 100)}") for q in (0.5, 0.95, 0.99)],
    ),
    graph(
        "Streams within the objective", f"Share of streams whose first token came within five seconds; the objective is {OBJECTIVE:.0%}.", "percentunit",
        (f"1 - llm_router:ttft_slow:ratio_rate5m{{{R}}}", "{{route}}"), width=12, max=1,
        thresholds=thresholds((OBJECTIVE, GREEN), color=RED),
    ),
    graph(
        "Error budget burn", "How many times faster than allowed the TTFT objective's budget is used. 1: it lasts exactly its 30 days; 14.4 for an hour uses 2 % of it.", "short",
        *[(f"llm_router:ttft_slow:ratio_rate{window}{{{R}}} / {round(1 - OBJECTIVE, 4)}", f"{{{{route}}}} {window}") for window in ("1h", "6h")], width=12,
    ),
])

TOKENS = Row("Tokens", [
    graph("Tokens by kind", "Tokens a second of the answers that told their usage. `cached` is part of `prompt`, `reasoning` of `completion`.", "short", (over("llm_router_tokens_total", RM, "kind"), "{{kind}}")),
    graph(
        "Prompt tokens from a cache", "Share of prompt tokens that an engine's prefix cache had: what affinity is worth.", "percentunit",
        (share(over("llm_router_cached_tokens_total", R, "route"), over("llm_router_prompt_tokens_total", R, "route")), "{{route}}"), max=1,
    ),
    graph(
        "Prompt tokens from a cache, by peer", "The same by peer. A peer far below the others gets conversations that live elsewhere.", "percentunit",
        (share(over("llm_router_cached_tokens_total", RP, "peer"), over("llm_router_prompt_tokens_total", RP, "peer")), "{{peer}}"), max=1,
    ),
    graph(
        "Length of prompts", "Prompt tokens of one request, as recorded.", "short",
        *[(quantile(q, "bodylog_prompt_tokens", BODY), f"p{int(q * 100)}") for q in (0.5, 0.95, 0.99)],
    ),
    graph(
        "Length of answers", "Completion tokens of one request, as recorded.", "short",
        *[(quantile(q, "bodylog_completion_tokens", BODY), f"p{int(q * 100)}") for q in (0.5, 0.95, 0.99)],
    ),
    graph(
        "Decode rate", "Tokens a second of one request from first to last chunk, as recorded. The low tail is what slow readers see.", "short",
        *[(quantile(q, "bodylog_decode_output_tok_per_second", BODY, "route"), f"{{{{route}}}} p{int(q * 100)}") for q in (0.1, 0.5, 0.9)],
    ),
    graph(
        "Rate of whole requests", "Completion tokens over the whole request, waiting included, as recorded.", "short",
        *[(quantile(q, "bodylog_overall_output_tok_per_second", BODY, "route"), f"{{{{route}}}} p{int(q * 100)}") for q in (0.1, 0.5, 0.9)],
    ),
    graph("Tokens by owner", "Prompt and completion tokens of the ten largest key owners; `-`: no key.", "short", (f'topk(10, {over("llm_router_tokens_total", RM + chr(44) + "kind=~" + chr(34) + "prompt|completion" + chr(34), "owner")})', "{{owner}}"), stack=True),
    graph("Requests by owner", "The ten largest key owners, as recorded.", "reqps", (f'topk(10, {over("bodylog_tenant_requests_total", R, "tenant")})', "{{tenant}}"), stack=True),
])

QUALITY = Row("Quality", [
    graph("How answers end", "Answers by why they ended, as recorded; `none` is a 200 that was not seen to end.", "reqps", (over("bodylog_finish_reason_total", BODY, "finish_reason"), "{{finish_reason}}"), stack=True),
    graph(
        "Cut off by the engine", "Share of answers that began well and were not seen to end: an engine that dies after its headers. Above 0.5 % there is an alert.", "percentunit",
        (f'bodylog:truncated:ratio_rate5m{{{R}}}', "{{route}}"), thresholds=thresholds((0.005, RED)),
    ),
    graph(
        "Left by the client", "Share of requests whose client went away, before the answer began or in its middle.", "percentunit",
        (share(over("llm_router_clients_gone_total", R, "route"), over("llm_router_requests_total", R, "route")), "{{route}}"),
    ),
    graph(
        "Retries", "Attempts that failed and went on to another peer, by each request.", "percentunit",
        (share(over("llm_router_retries_total", RP, "route"), over("llm_router_requests_total", RMP, "route")), "{{route}}"),
    ),
    graph(
        "Answers without usage", "Share of successes whose answer names no tokens: they feed no count and no gate.", "percentunit",
        (share(over("bodylog_usage_missing_total", BODY, "route"), over("bodylog_requests_total", BODY + ',status_class="2xx"', "route")), "{{route}}"),
    ),
    graph("Answers brought into shape", "Answers that a route's `postprocess` handler was meant for, by what became of them.", "reqps", (over("llm_router_postprocessed_total", R, "route, result"), "{{route}} {{result}}")),
    graph("Incomplete answers by cause", "`no_finish`: cut by the engine; `client_abort`: the client left; `capture`: stored in part only.", "reqps", (over("bodylog_truncated_total", BODY, "cause"), "{{cause}}")),
])

PEERS = Row("Peers", [
    graph("In flight by peer", "The router's own requests on each peer.", "short", (f"sum by (peer) (llm_router_in_flight{{{RP}}})", "{{peer}}"), stack=True),
    graph(
        "Share of slots in use", "Load of a peer, others' requests included where its engine is polled, over the requests it runs at once.", "percentunit",
        (f"max by (route, peer) (llm_router_peer_load{{{RP}}} / (llm_router_peer_slots{{{RP}}} > 0))", "{{route}} {{peer}}"),
    ),
    graph(
        "Imbalance", "The fullest peer over the mean of its route. 1: perfectly even; affinity makes more of it.", "short",
        (f"max by (route) (llm_router_peer_load{{{RP}}}) / (avg by (route) (llm_router_peer_load{{{RP}}}) > 0)", "{{route}}"),
    ),
    states(
        "Health", "Green: usable. Red: banned, nobody is sent there.", (f"min by (route, peer) (llm_router_peer_healthy{{{RP}}})", "{{route}} {{peer}}"),
        words={1: "healthy", 0: "banned"}, colors={1: GREEN, 0: RED},
    ),
    states(
        "Load page read", "Whether the last sample of a polled engine is recent. One that is held is alive, too busy to be read, and taken for full.", (f"min by (route, peer) (llm_router_peer_fresh{{{RP}}})", "{{route}} {{peer}}"),
        words={1: "fresh", 0: "stale"}, colors={1: GREEN, 0: AMBER},
    ),
    graph("Polls by result", "What polls of the engines' load pages found. Anything but `sampled` and `blind` explains a peer that is stale or out.", "cps", (over("llm_router_polls_total", RP, "result"), "{{result}}"), stack=True),
    graph("Bans", "Times a peer went from usable to banned.", "short", (f"sum by (route, peer) (increase(llm_router_peer_bans_total{{{RP}}}[{OVER}]))", "{{route}} {{peer}}")),
    graph("TTFT by peer", "95th percentile of the time to first token, as recorded.", "s", (quantile(0.95, "bodylog_ttft_seconds", BODY, "backend"), "{{backend}}")),
    graph("Output by peer", "Completion tokens a second, as recorded.", "short", (over("bodylog_completion_tokens_total", BODY, "backend"), "{{backend}}"), stack=True),
    graph("Failures by peer", "Attempts that failed on a peer and went on to another.", "reqps", (over("llm_router_retries_total", RP, "route, peer"), "{{route}} {{peer}}")),
])

CAPACITY = Row("Capacity", [
    graph(
        "Adaptive limit", "The limit of routes with adaptive_cc, between its floor and its ceiling.", "short",
        (f"llm_router_adaptive_limit{{{RM}}}", "{{route}} {{model}} limit ({{instance}})"),
        (f"llm_router_adaptive_limit_min{{{RM}}}", "{{route}} {{model}} floor ({{instance}})"),
        (f"llm_router_adaptive_limit_max{{{RM}}}", "{{route}} {{model}} ceiling ({{instance}})"),
        overrides=[dashed(".* (floor|ceiling) .*")],
    ),
    graph("Five-minute average in flight", "What a pool carries on average, beside its limit: the number to plan by.", "short", (f"sum by (route, model) (llm_router_cluster_avg{{{RM}}})", "{{route}} {{model}}"), (f"sum by (route, model) (llm_router_limit{{{RM}}})", "{{route}} {{model}} limit"), overrides=[dashed(".* limit")]),
    graph(
        "Time spent waiting", "How long waits for a slot of a full pool took, however they ended (`full_policy: wait`).", "s",
        *[(quantile(q, "llm_router_wait_seconds", R, "route"), f"{{{{route}}}} p{int(q * 100)}") for q in (0.5, 0.95)],
    ),
    graph(
        "Replicas", "Pods of a service that are ready, beside as many as there should be. In Kubernetes, from ModelRoutes.", "short",
        (f"max by (service) (bodylog_service_replicas_ready{{{R}}})", "{{service}} ready"), (f"max by (service) (bodylog_service_replicas_desired{{{R}}})", "{{service}} wanted"),
        overrides=[dashed(".* wanted")],
    ),
    graph("Output of one ready replica", "Completion tokens a second of a service over its ready pods. In Kubernetes, from ModelRoutes.", "short", (f'{over("bodylog_completion_tokens_total", R, "service")} / (max by (service) (bodylog_service_replicas_ready{{{R}}}) > 0)', "{{service}}")),
    graph("Output of one healthy peer", "Completion tokens a second of a route over its healthy peers.", "short", (f'{over("llm_router_tokens_total", RM + chr(44) + "kind=" + chr(34) + "completion" + chr(34), "route")} / (sum by (route) (max by (route, peer) (llm_router_peer_healthy{{{R}}})) > 0)', "{{route}}")),
])

AFFINITY = Row("Affinity and priority", [
    graph("How requests are placed", "Requests by `X-Routed-Mode`. Much `hash_fallback` or `sticky_new` means that conversations lose their cache.", "reqps", (over("llm_router_placements_total", R, "route, mode"), "{{route}} {{mode}}"), stack=True),
    graph("Why a peer was chosen", "What decided: the session, a prefix, a pin, a slot that was waited for, nobody's room (`overflow`), or the balance alone.", "reqps", (over("llm_router_selected_total", RP, "route, reason"), "{{route}} {{reason}}"), stack=True),
    graph("Sessions remembered", "Sessions of `sticky_least_loaded`; placement by hash remembers none.", "short", (f"sum by (route) (llm_router_sessions{{{R}}})", "{{route}}")),
    graph(
        "Sessions forgotten", "Sessions pushed out by `max_sessions`, and those that were idle for `session_ttl`. Evictions: the table is too small.", "cps",
        (over("llm_router_sessions_evicted_total", R, "route"), "{{route}} evicted"), (over("llm_router_sessions_expired_total", R, "route"), "{{route}} expired"),
    ),
    graph("Graded requests", "Requests graded by their session's turn while session_prio is on.", "reqps", (over("llm_router_session_prio_requests_total", R, "route, bucket, result"), "{{route}} turn {{bucket}} {{result}}")),
    graph(
        "Prompt tokens from a cache, by turn", "Share of the prompt tokens of graded requests that a cache had.", "percentunit",
        (share(over("llm_router_session_prio_tokens_total", R + ',kind="cached"', "route, bucket"), over("llm_router_session_prio_tokens_total", R + ',kind="prompt"', "route, bucket")), "{{route}} turn {{bucket}}"), max=1,
    ),
    graph("Without a session header", "Requests without a usable header while session_prio is on: they are taken for warm.", "reqps", (over("llm_router_session_prio_nohdr_total", R, "route, result"), "{{route}} {{result}}")),
])

ENGINES = Row("Engines", [
    graph("Running", "Requests that the engines say they run.", "short", (engine("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"), "{{instance}}"), stack=True),
    graph("Queued in the engine", "Requests that wait inside the engines: more than a few means that limits are above what the engines run at once.", "short", (engine("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"), "{{instance}}"), stack=True),
    graph("KV cache in use", "Share of the engines' KV cache in use. Near 1 they preempt and get slow.", "percentunit", (engine("vllm:kv_cache_usage_perc", "sglang:token_usage", how="max"), "{{instance}}"), max=1),
])

PROCESS = Row("Routers", [
    graph("CPU", "CPU time a second of each router: 1 is a core.", "short", (f'sum by (instance) (rate(process_cpu_seconds_total{{job="llm-router"}}[{OVER}]))', "{{instance}}")),
    graph("Memory", "Resident memory of each router, and the request bodies in it.", "bytes", ('process_resident_memory_bytes{job="llm-router"}', "{{instance}}"), ("llm_router_buffered_bytes", "{{instance}} bodies")),
    graph("File descriptors", "Share of the permitted descriptors that are open; each client and each peer connection takes one.", "percentunit", ('process_open_fds{job="llm-router"} / process_max_fds{job="llm-router"}', "{{instance}}")),
    states(
        "Configuration", "Whether the last reload found every file valid, and each route's file is the version in force.",
        ("llm_router_config_last_reload_success", "{{instance}} reload"), (f"llm_router_route_valid{{{R}}}", "{{instance}} {{route}}"),
        words={1: "valid", 0: "invalid"}, colors={1: GREEN, 0: RED},
    ),
    states("Key file", "What the last read of the key file found.", ('max by (instance, status) (llm_router_key_file_status)', "{{instance}} {{status}}"), words={0: "no", 1: "yes"}, colors={0: GREY, 1: BLUE}),
    table("Versions", "What runs, and since when.", [("Running", "short", "max by (instance, version) (llm_router_build_info)")], width=8),
])

BOARD = board(
    "llm-traffic",
    "LLM traffic",
    "Requests, refusals, latency, tokens and peers of llm-router. Made by deploy/grafana/source; the metrics are explained in docs/metrics.md.",
    [NOW, WHY, TRAFFIC, LATENCY, TOKENS, QUALITY, PEERS, CAPACITY, AFFINITY, ENGINES, PROCESS],
    [
        variable("route", "Route", "label_values(llm_router_limit, route)"),
        variable("model", "Model", 'label_values(llm_router_requests_total{route=~"$route"}, model)'),
        variable("peer", "Peer", 'label_values(llm_router_requests_total{route=~"$route"}, peer)'),
    ],
    [
        annotation("Reloads", "changes(llm_router_config_last_reload_success_timestamp_seconds[1m]) > 0", "reload on {{instance}}", BLUE),
        annotation("Bans", "increase(llm_router_peer_bans_total[1m]) > 0", "{{route}}: {{peer}} banned", RED),
    ],
    ["traffic"],
)

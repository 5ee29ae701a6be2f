"""Serves a model with llama.cpp's own HTTP server, inside this process, until a signal.

    serve.py PORT MODEL SLOTS [ALIAS]

PORT 0 lets the system choose. Prints `engine ready http://127.0.0.1:PORT` once the model is loaded;
llama.cpp logs to stderr.
"""

import signal
import sys

import xllamacpp


def main(port, model, slots, alias="tiny"):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {alias}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_parallel = slots
    parameters.n_ctx = 4096 * slots
    # Several share the cores, and llama.cpp's threads wait for each other by spinning.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.endpoint_metrics = parameters.endpoint_slots = True
    server = xllamacpp.Server(parameters)
    print(f"engine ready {server.listening_address.rstrip('/')}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])

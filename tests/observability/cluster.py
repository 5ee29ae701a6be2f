"""A cluster's API server of a few objects, for an exporter that asks one: lists, and watches in which nothing happens."""

import http.server
import json
import threading
import urllib.parse

SERVICE = "kubernetes.io/service-name"
VERSION = "1"


def owned(kind, name):
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}]


def endpoint(number, ready):
    return {"addresses": [f"10.9.0.{number}"], "conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "name": f"vllm-{number}"}}


# One route over a service of a Deployment: three pods are wanted, two are there, one is ready.
OBJECTS = {
    "/apis/routing.modelsphere.dev/v1alpha1/modelroutes": [
        {"metadata": {"name": "chat", "namespace": "inference"}, "spec": {"nginx": {"route": "chat"}, "discovery": {"service": "inference/vllm"}}}
    ],
    "/apis/discovery.k8s.io/v1/namespaces/inference/endpointslices": [
        {
            "metadata": {"name": "vllm-1", "namespace": "inference", "labels": {SERVICE: "vllm"}}, "addressType": "IPv4",
            "endpoints": [endpoint(1, True), endpoint(2, False)],
        }
    ],
    "/api/v1/namespaces/inference/pods/vllm-1": {"metadata": {"name": "vllm-1", "ownerReferences": owned("ReplicaSet", "vllm-a")}},
    "/apis/apps/v1/namespaces/inference/replicasets/vllm-a": {"metadata": {"name": "vllm-a", "ownerReferences": owned("Deployment", "vllm")}, "spec": {"replicas": 4}},
    "/apis/apps/v1/namespaces/inference/deployments/vllm": {"metadata": {"name": "vllm"}, "spec": {"replicas": 3}},
}  # fmt: skip


class Cluster:
    """Answers until it is stopped."""

    def __init__(self):
        over = threading.Event()

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked = urllib.parse.urlsplit(self.path)
                found = OBJECTS.get(asked.path)
                self.send_response(200 if found else 404)
                # What ends with the connection has no length.
                self.send_header("connection", "close")
                self.end_headers()
                if "watch=true" in asked.query:
                    self.wfile.flush()
                    over.wait(float(urllib.parse.parse_qs(asked.query)["timeoutSeconds"][0]))
                    return
                if isinstance(found, list):
                    objects = [{**one, "metadata": {**one["metadata"], "resourceVersion": VERSION}} for one in found]
                    found = {"metadata": {"resourceVersion": VERSION}, "items": objects}
                nothing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
                self.wfile.write(json.dumps(found or nothing).encode())

            def log_message(self, *_):
                pass

        self._over = over
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

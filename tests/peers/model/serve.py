"""Serves the model until it is killed, and prints its address first: serve.py FILE"""

import sys
import threading

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"tiny"}
params.port = 0
params.n_ctx = 8192
params.n_parallel = 1
# An answer may be endless.
params.ctx_shift = True
params.warmup = False
params.endpoint_slots = True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()

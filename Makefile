# A few lines over Meson, for newcomers: packages, build, serve, check.
BUILD = build
MODEL ?= models/lexis
# Not from the environment, where some shells and conda put a name of theirs.
HOST = 127.0.0.1
PORT ?= 8080

build: packages
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD)
	ninja -C $(BUILD) tigond tigon

serve: build
	@echo "When the log below says \"ready after\", try from another terminal:"
	@echo "curl -s http://$(HOST):$(PORT)/v1/chat/completions -H 'Content-Type: application/json' -d '{\"temperature\": 0, \"messages\": [{\"role\": \"user\", \"content\": \"What is a violin?\"}]}'"
	@exec $(BUILD)/tigond --model $(MODEL) --host $(HOST) --port $(PORT)

# The programs as they are shipped.
check:
	@packaging/install-packages check
	tests/run release

# The tests of the host's code under sanitizers, the kernels' tests under oclgrind, and the fuzzers.
sanitize:
	@packaging/install-packages check
	tests/run oclgrind asan fuzz tsan

# Tests that are too long for `make check`: clients that attack (attack.py), and endurance (endure.py). The results of
# several runs of endure.py add up in a file: tests/soak/endure.py --help.
SOAK_SECONDS ?= 60
SOAK_MINUTES ?= 5

soak: build
	python3 tests/soak/attack.py $(BUILD)/tigond --model $(MODEL) --quiet 20 --seconds $(SOAK_SECONDS)
	python3 tests/soak/attack.py $(BUILD)/tigond --model $(MODEL) --quiet 20 --seconds $(SOAK_SECONDS) --answered
	python3 tests/soak/endure.py $(BUILD)/tigond --minutes $(SOAK_MINUTES) --restarts 4

# Client libraries from PyPI against tigond, each in an environment of its own below build/clients: all, or CLIENTS="openai llm".
# EXAMPLES and SEED are those of tests/clients/test_schemathesis.py.
clients: build
	@packaging/install-packages check
	python3 tests/clients/run.py $(BUILD)/tigond $(CLIENTS)

packages:
	@packaging/install-packages

.PHONY: build serve check sanitize soak clients packages

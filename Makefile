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
	@echo "Try, from another terminal:"
	@echo "curl -s http://$(HOST):$(PORT)/v1/chat/completions -H 'Content-Type: application/json' -d '{\"temperature\": 0, \"messages\": [{\"role\": \"user\", \"content\": \"What is a violin?\"}]}'"
	@exec $(BUILD)/tigond --model $(MODEL) --host $(HOST) --port $(PORT)

check:
	@packaging/install-packages check
	tests/run

packages:
	@packaging/install-packages

.PHONY: build serve check packages

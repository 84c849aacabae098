#!/bin/sh -e
# A chat, whole and as a stream, and an answer that is one of two words.
url=${TIGON_URL:-http://127.0.0.1:8080}/v1/chat/completions
ask() { curl -sSfN "$url" -H 'Content-Type: application/json' -H 'Authorization: Bearer any' -d "$1"; echo; }

violin='"temperature": 0, "messages": [{"role": "user", "content": "What is a violin?"}]'
ask "{$violin}"
ask "{$violin, \"stream\": true, \"stream_options\": {\"include_usage\": true}}"
ask "{$violin, \"guided_choice\": [\"yes\", \"no\"]}"

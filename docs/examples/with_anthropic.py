"""anthropic: a message as a stream, and why it ended. pip install anthropic"""
import os

import anthropic

client = anthropic.Anthropic(base_url=os.environ.get("TIGON_URL", "http://127.0.0.1:8080"), api_key="any")
with client.messages.stream(model="lexis", max_tokens=200, messages=[{"role": "user", "content": "What is a violin?"}],
                            extra_body={"temperature": 0}) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
    print(f"\n{stream.get_final_message().stop_reason}")

"""openai: a chat as a stream, and how much of its prompt was cached. pip install openai"""
import os

import openai

client = openai.OpenAI(base_url=os.environ.get("TIGON_URL", "http://127.0.0.1:8080") + "/v1", api_key="any")
chunks = client.chat.completions.create(model="lexis", messages=[{"role": "user", "content": "What is a violin?"}], temperature=0,
                                        stream=True, stream_options={"include_usage": True})
for chunk in chunks:
    print(chunk.choices[0].delta.content or "" if chunk.choices else f"\n{chunk.usage.prompt_tokens_details}", end="", flush=True)
print()

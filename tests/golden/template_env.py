"""The reference for chat templates: jinja2 as transformers sets it up, and its result for a case."""
import json
import warnings

import jinja2
from transformers.utils.chat_template_utils import _cached_compile_jinja_template as compile_template

warnings.simplefilter("ignore")  # odd escapes in string literals


def render(template, context):
    """{"output"} or {"error": "raised", "text"} or {"error": "invalid", "why"}.

    raise_exception ends in a plain TemplateError; all other failures are the template's own."""
    context = json.loads(json.dumps(context))
    try:
        compiled = compile_template(template)
        output = compiled.render(**context)
        output.encode("utf-8")
    except jinja2.exceptions.TemplateError as e:
        if type(e) is jinja2.exceptions.TemplateError:
            return {"error": "raised", "text": str(e)}
        return {"error": "invalid", "why": f"{type(e).__name__}: {e}"}
    except RecursionError:
        return {"error": "invalid", "why": "RecursionError"}
    except Exception as e:
        return {"error": "invalid", "why": f"{type(e).__name__}: {e}"}
    return {"output": output}

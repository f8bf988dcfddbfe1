"""Conversations as clients of the API send them, good and odd, from a seed.

conversation(seed, index) is the same on every machine: it gives the variables of a chat template.
Used by tools/compare_templates.py.
"""
import json
import random

WORDS = (
    "the function returns a list of files and then prints each name twice before it exits with "
    "status zero unless the user asked for verbose output").split()

ODD_TEXTS = [
    "", " ", "\n", "\n\n  leading", "trailing  \n\n", "\ttabs\t", "a\r\nb\r\n", "line\u2028separator\u2029",
    "<b>bold & \"quoted\"</b> 'single'", "{{ not.a.template }} {% raw %} {# no #}", "\\n \\u0041 \\\\",
    "😀👩‍👩‍👧‍👦 emoji", "日本語のテキスト", "ß ŉ ǰ İ ı ſ Ǆ", "e\u0301 and é", "\u0000\u0001\u001f\u007f control",
    "\ufeffBOM", "\u200b\u00a0 spaces \u3000", "שלום عربى", "<think>inner</think>after",
    "before</think>\n\nafter", "<think>\nunclosed", "</think></think>x", "</assistant>\n<user>fake</user>",
    "<tool_call>f\n<arg_key>a</arg_key></tool_call>", "<|im_end|>", "〈|EOS|〉", "<tool_response>x</tool_response>",
    "$ {} %s %d %% {0}", "null", "None", "true", "{\"a\": 1}", "[1, 2]", "0", "-0.0", "1e16", "'", '"',
    "𝕌𝕟𝕚𝕔𝕠𝕕𝕖", "\U0010ffff\ue000", "a\vb\fc\x1cd\x85e",
]

NUMBERS = [
    0, 1, -1, 7, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1,
    -(2**64), 10**30, 0.0, -0.0, 1.0, 1.5, 0.1, 1e16, 1e15, 123456789012345680.0, 1e-7, 1e-5, 1e-4,
    1e22, 1e23, 5e-324, 1.7976931348623157e308, 3.141592653589793, 1e100, -2.5e-10, 100.0,
]

KEYS = ["path", "query", "count", "a b", "naïve", "items", "keys", "values", "get", "content",
        "type", "0", "", "x.y", "deep", "日本", "quote\"d", "update", "<k>", "name", "role"]

NAMES = ["read_file", "get_weather", "search", "f", "a.b-c_d", "ünïcode", "items", "run/it", ""]


class Maker:
    """Makes one conversation."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, share):
        return self.random.random() < share

    def text(self):
        if self.chance(0.3):
            return self.random.choice(ODD_TEXTS)
        if self.chance(0.15):
            return self.random.choice(ODD_TEXTS) + self.random.choice(ODD_TEXTS)
        if self.chance(0.01):
            return "long " * 5000 + self.random.choice(ODD_TEXTS) * 200
        if self.chance(0.1):
            return "".join(chr(self.character()) for _ in range(self.random.randrange(1, 40)))
        words = [self.random.choice(WORDS) for _ in range(self.random.randrange(1, 30))]
        return self.random.choice([" ", " ", " ", "\n", "  "]).join(words)

    def character(self):
        code = self.random.choice([self.random.randrange(0x80), self.random.randrange(0x3000),
                                   self.random.randrange(0x110000)])
        return 0x20 if 0xD800 <= code < 0xE000 else code

    def value(self, depth=0):
        kind = self.random.randrange(8 if depth < 4 else 5)
        if kind <= 1:
            return self.text()
        if kind == 2:
            return self.random.choice(NUMBERS)
        if kind == 3:
            return self.random.choice([True, False, None])
        if kind == 4:
            return self.random.choice([[], {}, "", 0])
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(KEYS): self.value(depth + 1)
                for _ in range(self.random.randrange(5))}

    def arguments(self):
        """An object, a string of JSON as the OpenAI API has it, or something broken."""
        made = {self.random.choice(KEYS): self.value(1) for _ in range(self.random.randrange(5))}
        if self.chance(0.7):
            return made
        text = json.dumps(made, ensure_ascii=self.chance(0.5))
        return self.random.choice([text, text, text[: len(text) // 2], "", "{", None, [], "null"])

    def tool_call(self):
        function = {"name": self.random.choice(NAMES), "arguments": self.arguments()}
        if self.chance(0.05):
            del function["arguments"]
        if self.chance(0.1):
            return function
        call = {"id": f"call_{self.random.randrange(10**9):09d}", "type": "function",
                "function": function}
        if self.chance(0.1):
            del call["id"]
        return call

    def schema(self, depth=0):
        kind = self.random.choice(["string", "integer", "number", "boolean", "array", "object",
                                   ["string", "null"], "custom"])
        schema = {"type": kind}
        if self.chance(0.6):
            schema["description"] = self.text()
        if self.chance(0.2):
            schema["enum"] = [self.value(3) for _ in range(3)]
        if self.chance(0.2):
            schema["default"] = self.value(3)
        if self.chance(0.2):
            schema["nullable"] = self.chance(0.5)
        if kind == "array" and depth < 3:
            schema["items"] = self.schema(depth + 1)
        if kind == "object" and depth < 3:
            schema.update(self.parameters(depth + 1))
        if self.chance(0.05):
            del schema["type"]
        return schema

    def parameters(self, depth=0):
        names = [self.random.choice(KEYS) for _ in range(self.random.randrange(4))]
        made = {"type": "object", "properties": {name: self.schema(depth) for name in names}}
        if self.chance(0.6):
            made["required"] = [name for name in names if self.chance(0.5)]
        if self.chance(0.2):
            made["additionalProperties"] = False
        return made

    def tool(self):
        function = {"name": self.random.choice(NAMES)}
        if self.chance(0.8):
            function["description"] = self.text()
        if self.chance(0.9):
            function["parameters"] = self.parameters()
        if self.chance(0.2):
            function["strict"] = True
        if self.chance(0.1):
            function["return"] = self.schema()
        if self.chance(0.05):
            return function
        return {"type": "function", "function": function}

    def tools(self):
        if self.chance(0.45):
            return self.random.choice([None, None, []])
        return [self.tool() for _ in range(self.random.choice([1, 1, 2, 3, 9]))]

    def content(self, odd):
        if not odd or self.chance(0.7):
            return self.text()
        parts = [{"type": "text", "text": self.text()} for _ in range(self.random.randrange(3))]
        if self.chance(0.2):
            parts.append({"type": "image_url", "image_url": {"url": "data:,"}})
        if self.chance(0.1):
            parts.append(self.text())
        return self.random.choice([None, parts, parts, parts, self.value(3)])

    def message(self, role, odd):
        message = {"role": role}
        if not (odd and self.chance(0.05)):
            message["content"] = self.content(odd)
        if role == "tool":
            message["tool_call_id"] = f"call_{self.random.randrange(10**9):09d}"
            if self.chance(0.3):
                message["name"] = self.random.choice(NAMES)
        if role == "assistant":
            for key in ("reasoning", "reasoning_content", "thinking"):
                if self.chance(0.25):
                    message[key] = self.random.choice([self.text(), self.text(), None])
            if self.chance(0.05):
                message["reasoning_details"] = [{"type": "reasoning.text", "text": self.text()}]
            if odd and self.chance(0.05):
                message["tool_calls"] = self.random.choice([None, [], {}, ""])
        return message

    def orderly(self):
        """Turns in an order that every template takes."""
        odd = self.chance(0.3)
        messages = []
        if self.chance(0.6):
            messages.append(self.message("system", odd))
        for _ in range(self.random.choice([1, 1, 2, 3, 6])):
            messages.append(self.message("user", odd))
            while self.chance(0.3):
                turn = self.message("assistant", odd)
                calls = self.random.choice([1, 1, 1, 2, 4])
                turn["tool_calls"] = [self.tool_call() for _ in range(calls)]
                if self.chance(0.5):
                    turn["content"] = self.random.choice(["", None])
                messages.append(turn)
                messages += [self.message("tool", odd) for _ in range(calls)]
            messages.append(self.message("assistant", odd))
        if self.chance(0.8):
            messages.pop()  # what the model is to answer
        return messages

    def disorderly(self):
        roles = ["system", "developer", "user", "user", "assistant", "assistant", "tool", "ipython",
                 "function", "", None, "User"]
        messages = []
        for _ in range(self.random.randrange(7)):
            role = self.random.choice(roles[:7] if self.chance(0.9) else roles)
            message = self.message(role, True)
            if role == "assistant" and self.chance(0.4):
                message["tool_calls"] = [self.tool_call()
                                         for _ in range(self.random.randrange(1, 4))]
            messages.append(message)
        return messages

    def variables(self):
        made = {"messages": self.orderly() if self.chance(0.75) else self.disorderly(),
                "tools": self.tools(), "add_generation_prompt": self.chance(0.7)}
        if self.chance(0.9):
            made.update(bos_token="<bos>", eos_token="</s>", pad_token="<pad>")
        for name, share in (("enable_thinking", 0.6), ("preserve_thinking", 0.3), ("thinking", 0.1),
                            ("tools_in_user_message", 0.1), ("continue_final_message", 0.1)):
            if self.chance(share):
                made[name] = self.chance(0.5)
        if self.chance(0.1):
            made["documents"] = self.random.choice([None, [{"title": self.text(), "text": self.text()}]])
        if self.chance(0.1):
            made["reasoning_effort"] = self.random.choice(["low", "medium", "high"])
        if self.chance(0.1):
            made["date_string"] = "26 Jul 2024"
        return made


def conversation(seed, index):
    return Maker(f"{seed}/{index}").variables()

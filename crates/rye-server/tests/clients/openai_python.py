"""Exercises the OpenAI-compatible endpoints with the official Python client.

Usage: openai_python.py URL TOKEN. The agent follows the script in `serve_clients.rs`.
"""

import json
import sys
import time
import urllib.request

import openai
import pydantic

URL, TOKEN = sys.argv[1:]
client = openai.OpenAI(base_url=URL + "/v1", api_key=TOKEN, max_retries=0)


def api(method, path, body=None):
    """Calls Rye's own API."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}
    request = urllib.request.Request(URL + path, data, headers, method=method)
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def until_ended(response):
    """Polls a response, for half a minute at most."""
    for _ in range(300):
        if response.status in ("completed", "failed", "cancelled"):
            return response
        time.sleep(0.1)
        response = client.responses.retrieve(response.id)
    raise AssertionError(response.status)


def check_models():
    names = [model.id for model in client.models.list()]
    assert names[:4] == ["rye", "judge", "reviewer", "slow"], names
    assert client.models.retrieve("reviewer").id == "reviewer"


def check_responses():
    first = client.responses.create(model="rye", input="hi", instructions="Be brief.")
    assert first.status == "completed" and first.output_text == "hello wörld", first
    assert first.usage.input_tokens == 100 and first.usage.output_tokens == 5, first.usage
    assert first.instructions == "Be brief."

    events = list(
        client.responses.create(
            model="rye", input="more", previous_response_id=first.id, stream=True
        )
    )
    assert [event.type for event in events[:4]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ], events
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 1 and "".join(it.delta for it in deltas) == "second", deltas
    second = events[-1].response
    assert second.status == "completed" and second.output_text == "second", second
    assert second.conversation.id == first.conversation.id
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers)), numbers

    # Cut anywhere, a resumed stream has the rest.
    for number in numbers:
        rest = list(
            client.responses.retrieve(second.id, stream=True, starting_after=number)
        )
        received = [event for event in events if event.sequence_number <= number] + rest
        text = "".join(
            event.delta for event in received if event.type == "response.output_text.delta"
        )
        assert text == "second", (number, text)
        others = [e.type for e in received if e.type != "response.output_text.delta"]
        expected = [e.type for e in events if e.type != "response.output_text.delta"]
        assert others == expected, (number, others)

    # A response that is not the last one is continued in a fork.
    branch = client.responses.create(model="rye", input="again", previous_response_id=first.id)
    assert branch.output_text == "second", branch
    assert branch.conversation.id != first.conversation.id
    return second


def check_gate(second):
    waiting = client.responses.create(
        model="rye", input="write", previous_response_id=second.id
    )
    assert waiting.status == "incomplete", waiting
    details = waiting.incomplete_details
    assert details.reason == "decision_required", details
    gate = details.model_extra["gate"]
    assert gate["url"].endswith(gate["id"]), gate
    stored = client.responses.retrieve(waiting.id)
    assert stored.status == "incomplete", stored
    # The next prompt waits for the same decision.
    blocked = client.responses.create(
        model="rye", input="next", conversation=waiting.conversation.id
    )
    assert blocked.incomplete_details.model_extra["gate"]["id"] == gate["id"], blocked
    api("POST", "/api/gates/" + gate["id"] + "/decision", {"action": "approve"})
    ended = until_ended(client.responses.retrieve(waiting.id))
    assert ended.status == "completed" and ended.output_text == "Done.", ended
    call = ended.output[0]
    assert call.type == "mcp_call" and call.name == "bash", call
    assert call.error is None and json.loads(call.arguments)["command"], call
    assert until_ended(blocked).output_text == "last", blocked


def check_background():
    response = client.responses.create(model="slow", input="go", background=True)
    assert response.status in ("queued", "in_progress"), response
    cancelled = client.responses.cancel(response.id)
    assert cancelled.status == "cancelled", cancelled
    assert client.responses.retrieve(response.id).status == "cancelled"


class Verdict(pydantic.BaseModel):
    good: bool


def check_structured():
    parsed = client.responses.parse(model="judge", input="judge", text_format=Verdict)
    assert parsed.output_parsed == Verdict(good=True), parsed


def check_chat():
    before = len(api("GET", "/api/sessions")["sessions"])
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    answer = client.chat.completions.create(model="rye", messages=messages)
    choice = answer.choices[0]
    assert choice.message.content == "hello wörld" and choice.finish_reason == "stop", answer
    assert answer.usage.total_tokens == 105, answer.usage
    messages += [choice.message.to_dict(), {"role": "user", "content": "more"}]
    stream = client.chat.completions.create(
        model="rye", messages=messages, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(it.choices[0].delta.content or "" for it in chunks if it.choices)
    assert text == "second", chunks
    assert chunks[-2].choices[0].finish_reason == "stop" and chunks[-1].usage, chunks
    assert len(api("GET", "/api/sessions")["sessions"]) == before + 1

    # Rye does not know this conversation, so the first prompt contains it.
    unknown = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"},
    ]
    answer = client.chat.completions.create(model="rye", messages=unknown)
    assert answer.choices[0].message.content == "hello wörld", answer


def check_errors():
    def fails(error, code, **request):
        try:
            client.responses.create(**{"model": "rye", "input": "x", **request})
        except error as raised:
            assert raised.code == code, raised
        else:
            raise AssertionError(request)

    fails(openai.NotFoundError, "model_not_found", model="nothing")
    fails(openai.NotFoundError, "not_found", previous_response_id="resp_0_a@b")
    tool = {"type": "function", "name": "x", "parameters": {}}
    fails(openai.BadRequestError, "unsupported_parameter", tools=[tool])
    fails(openai.BadRequestError, "invalid_value", input="")
    fails(openai.BadRequestError, "invalid_value", input=[])
    stranger = openai.OpenAI(base_url=URL + "/v1", api_key="sk-x", max_retries=0)
    try:
        stranger.models.list()
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key", error
    else:
        raise AssertionError("an unknown token is accepted")


def scenario(client, name, check, *arguments):
    """Carries out a scenario. `cargo xtask docs` lists them in docs/clients/README.md."""
    try:
        return check(*arguments)
    except BaseException:
        print(f"{client}: {name}", file=sys.stderr)
        raise


scenario("openai-python", "models and roles are listed", check_models)
second = scenario("openai-python", "responses are streamed, continued, resumed anywhere and forked", check_responses)
scenario("openai-python", "gate ends a response as incomplete, and the decision completes it", check_gate, second)
scenario("openai-python", "background response is polled and cancelled", check_background)
scenario("openai-python", "structured output is parsed", check_structured)
scenario("openai-python", "chat completion is streamed and continues its session", check_chat)
scenario("openai-python", "errors have the form and codes that the client expects", check_errors)

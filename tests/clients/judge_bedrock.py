"""Judges with Amazon's own library: reads `{"requests": [...], "streams": [...], "signed": [...]}`, prints its verdicts.

It imports nothing of alipes, so it runs where `botocore` is installed.
"""

import base64
import json
import sys

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.eventstream import EventStreamBuffer
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

SHAPE = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2")).shape_for("ConverseStreamRequest")


def mistakes(request):
    """What botocore would refuse to send. Bytes are base64 on the wire, which it encodes itself."""
    report = ParamValidator().validate(request, SHAPE)
    return report.generate_report() if report.has_errors() else ""


def events(data):
    """Kind and payload of each event, as botocore reads them."""
    buffer = EventStreamBuffer()
    buffer.add_data(base64.b64decode(data))
    found = []
    for each in buffer:
        headers = each.headers
        kind = headers.get(":exception-type") or headers.get(":error-code") or headers.get(":event-type", "")
        found.append([headers[":message-type"], kind, each.payload.decode()])
    return found


def signature(signed):
    request = AWSRequest("POST", signed["url"], signed["headers"], base64.b64decode(signed["content"]))
    request.context["timestamp"] = signed["date"]
    request.headers["X-Amz-Date"] = signed["date"]
    if signed["token"]:
        request.headers["X-Amz-Security-Token"] = signed["token"]
    key = Credentials(signed["key"], signed["secret"], signed["token"] or None)
    auth = SigV4Auth(key, signed["service"], signed["region"])
    return auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)


def main():
    task = json.load(sys.stdin)
    verdict = {
        "requests": [mistakes(each) for each in task["requests"]],
        "streams": [events(each) for each in task["streams"]],
        "signed": [signature(each) for each in task["signed"]],
    }
    json.dump(verdict, sys.stdout)


if __name__ == "__main__":
    main()

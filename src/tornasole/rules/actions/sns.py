"""Amazon's notification service, for e-mails and text messages as ``smdebug`` sends them."""

from __future__ import annotations

import json
import os
from importlib import import_module
from importlib.util import find_spec

from tornasole.rules.actions.contract import Undone

_TOPIC = "SMDebugRules"
_FILTERS = {"email": "email", "sms": "phone_num"}


def obstacle() -> str:
    """Why nothing can be published here, as far as can be seen; empty: it can."""
    try:
        found = find_spec("boto3") is not None
    except ValueError:  # it is there, without a spec
        found = True
    return "" if found else "it goes through Amazon's SNS, which needs boto3: pip install boto3"


def publish(protocol: str, endpoint: str, text: str) -> None:
    """Sends a text to one endpoint, through the topic that ``smdebug`` uses.

    Args:
        protocol: ``email`` or ``sms``.

    Raises:
        Undone: Amazon would not.
    """
    boto3, errors = import_module("boto3"), import_module("botocore.exceptions")
    attribute = _FILTERS[protocol]
    try:
        client = boto3.client("sns", region_name=os.environ.get("AWS_REGION", "us-east-1"))
        topic = client.create_topic(Name=_TOPIC)["TopicArn"]
        client.subscribe(
            TopicArn=topic,
            Protocol=protocol,
            Endpoint=endpoint,
            Attributes={"FilterPolicy": json.dumps({attribute: [endpoint]})},
        )
        client.publish(
            TopicArn=topic,
            Message=text,
            MessageAttributes={attribute: {"DataType": "String", "StringValue": endpoint}},
        )
    except (errors.BotoCoreError, errors.ClientError) as error:
        raise Undone(f"SNS: {error}") from None

package envelope

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"asynccaller/handler/internal/dotnet"
)

// callbackContentType is the content type that the C# side's StringContent sets.
const callbackContentType = "application/json; charset=utf-8"

// payloadRoom accounts for base64, which makes four bytes of three.
func (n *nexus) payloadRoom(spare int) int { return max(spare/4*3-3, 0) }

// encodeCallback writes the callback as RequestEnvelope.GetResponseAsRequestEnvelopeAsync of the C# SDK does.
func (n *nexus) encodeCallback(e *Envelope, r Report, context json.RawMessage) []byte {
	original := cmp.Or(n.originalRequestID, e.RequestID)
	body := newObject()
	r.begin(body, original, context)
	callOut, err := dotnet.ReplaceContent(n.callBack, callbackContentType, body.end())
	if err != nil {
		panic(fmt.Sprintf("a callback that was parsed before cannot be parsed: %v", err))
	}
	id := nexusCallbackID(e.RequestID)
	return nexusRequest{
		Tenant: e.Tenant, originalRequestID: original, id: id, title: nexusTitle(n.callBackMethod, e.Callback.URL, id),
		createdAt: r.At, deadline: r.Deadline, callOut: callOut, callOutScheme: cmp.Or(n.callBackScheme, defaultScheme),
	}.encode()
}

// nexusCallbackID derives a GUID from the call's id. It is always the same, so that the receiver can recognize a duplicate
// callback by its Idempotency-Key.
func nexusCallbackID(requestID string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:async-caller:callback:"+requestID)).String()
}

package ingress_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestMetadataAsDocumented: Microsoft's documentation shows the count as a number.
func TestMetadataAsDocumented(t *testing.T) {
	a := newApp(t, answers(503))
	post(t, a.start(t), binary(anEnvelope(""), `{"Id":"`+messageID+`","DequeueCount":3}`)).wantStatus(t, http.StatusOK)
	if got := a.mustOneLine(t)["dequeue_count"]; got != 3.0 {
		t.Errorf("dequeue count %v, want 3", got)
	}
}

// TestHeaderValueInName: a header's value that the sender wrote into its name stays secret.
func TestHeaderValueInName(t *testing.T) {
	a := newApp(t, nil)
	reply := post(t, a.start(t), binary(`{"asyncCaller":1,"call":{"url":"https://t.example/",`+
		`"headers":{"Authorization: Bearer C4nary":""}}}`, goodMetadata))
	a.wantNoSecret(t, reply)
	if !strings.Contains(a.log.String(), "Authorization") {
		t.Error("the log does not name the header")
	}
}

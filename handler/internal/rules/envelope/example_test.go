package envelope_test

import (
	"fmt"
	"time"

	"asynccaller/handler/internal/rules/envelope"
)

func Example() {
	content := []byte(`{"asyncCaller": 1, "requestId": "order-42", "call": {"url": "https://example.com/orders", "json": {"id": 42}}}`)
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	e, err := envelope.Parse(content)
	if err == nil {
		err = e.Accept(now, "id-of-the-message", 48<<10)
	}
	if err != nil {
		fmt.Println("malformed:", err)
		return
	}
	fmt.Printf("%s %s %s\n", e.Call.Method, e.Call.URL, e.Call.Body.Bytes())

	// The target answered 503: reschedule.
	state := e.State
	state.Attempts++
	successor, err := e.WithState(state).Successor(48 << 10)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%s\n", successor.Bytes)
	// Output:
	// POST https://example.com/orders {"id": 42}
	// {"asyncCaller":1,"requestId":"order-42","call":{"url": "https://example.com/orders", "json": {"id": 42}},"createdAt":"2026-01-31T12:00:00Z","attempts":1,"trace":{"traceparent":"00-d40eb361e2ef7177c40ad412aa4bd192-e590d710f2ab542f-01"}}
}

func ExampleParse_errors() {
	for _, content := range []string{
		`{"asyncCaller": 1, "call": {"url": "ftp://example.com"}}`,
		`{"asyncCaller": 1, "call": {"url": "https://example.com", "headers": {"Accept": ["a", 1]}}}`,
		`{"asyncCaller": 1, "call": }`,
	} {
		_, err := envelope.Parse([]byte(content))
		fmt.Println(err)
	}
	// Output:
	// call.url: want an absolute http or https URL
	// call.headers.Accept[1]: want a string or an array of strings
	// not JSON: line 1, column 28: missing value after object name
}

func ExampleIdentify() {
	tenant, requestID := envelope.Identify([]byte(`{"Organization":"acme","Environment":"prd","OriginalRequestId":"order-42","RawRequest":{"CallOut":null}}`))
	fmt.Println(tenant.Organization, tenant.Environment, requestID)
	// Output: acme prd order-42
}

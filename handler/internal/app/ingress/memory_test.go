package ingress_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

const (
	// maxInvocation is the size of the largest body that the handler reads; the test uses an eighth of it.
	maxInvocation = 2 << 20
	// maxHeapPerByte limits the allocated bytes per byte of an invocation, garbage included.
	maxHeapPerByte = 150
)

// TestMemory limits the memory that any invocation makes the handler allocate. It counts all of it, garbage included,
// so the heap never grows by more.
func TestMemory(t *testing.T) {
	const (
		size = maxInvocation / 8
		room = size - 1<<10
	)
	// repeated fills a text up to a size with numbered elements, same with equal ones.
	repeated := func(head, element, tail string, size int) string {
		var b strings.Builder
		for b.WriteString(head); b.Len() < size-len(tail)-len(element)-8; {
			fmt.Fprintf(&b, element, b.Len())
		}
		return b.String() + tail
	}
	same := func(head, element, tail string, size int) string {
		return head + strings.Repeat(element, (size-len(head)-len(tail))/len(element)) + tail
	}
	const (
		call   = `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://t.example/"`
		inB64  = room / 4 * 3
		twice  = inB64/4*3 - 1<<10
		inText = room / 4 // each quotation mark takes four bytes
	)
	worst, worstOf := 0.0, ""
	for _, row := range []struct{ name, body string }{
		{"brackets", strings.Repeat("[", size)},
		{"members of Metadata", repeated(`{"Data":{"msg":"e30="},"Metadata":{`, `"%x":0,`, `"z":0}}`, room)},
		{"members of Data", repeated(`{"Data":{`, `"%x":0,`, `"msg":"e30="},"Metadata":{}}`, room)},
		{"escapes", `{"Data":{"msg":"` + strings.Repeat(`\u0041`, room/6) + `"},"Metadata":{}}`},
		{"text", text(t, strings.Repeat("x", room), goodMetadata)},
		{"binary", binary(strings.Repeat("x", inB64), goodMetadata)},
		{"unknown members", binary(repeated(`{"asyncCaller":1,`, `"%x":0,`, `"call":{"url":"http://t.example/"}}`,
			inB64), goodMetadata)},
		{"headers", binary(repeated(call+`,"headers":{`, `"%x":"",`, `"z":""}}}`, inB64), goodMetadata)},
		{"headers in text mode", text(t, repeated(call+`,"headers":{`, `"%x":"",`, `"z":""}}}`, inText), goodMetadata)},
		{"values of a header", binary(same(call+`,"headers":{"X-A":[`, `"",`, `""]}}}`, inB64), goodMetadata)},
		{"body", binary(same(call+`,"body":"`, `\n`, `"}}`, inB64), goodMetadata)},
		{"bodyBase64", binary(same(call+`,"bodyBase64":"`, `AAAA`, `"}}`, inB64), goodMetadata)},
		{"trail", binary(same(call+`},"trail":[`, `{},`, `{}]}`, inB64), goodMetadata)},
		{"schedule", binary(same(call+`},"retry":{"schedule":[`, `0,`, `0]}}`, inB64), goodMetadata)},
		{"Nexus headers", binary(nexusHead(strings.Repeat("a:\r\n", twice/4)), goodMetadata)},
		{"Nexus header names", binary(nexusHead(repeated("", "%x:\r\n", "", twice)), goodMetadata)},
		{"Nexus header lines", binary(nexusHead("a:\r\n"+strings.Repeat(" \r\n", twice/3)), goodMetadata)},
		{"Nexus latest response", binary(nexusWith(`"LatestResponse":"`+
			in64("HTTP/1.1 500 x\r\n"+repeated("", "%x:\r\n", "", twice)+"\r\n")+`"`), goodMetadata)},
		{"Nexus callback", binary(nexusRaw(`"CallBack":"`+in64(nexusHeadOf(repeated("", "%x:\r\n", "", twice)))+`"`),
			goodMetadata)},
	} {
		if len(row.body) > size || len(row.body) < size/2 {
			t.Errorf("%s: %d bytes", row.name, len(row.body))
		}
		perByte := allocated(t, row.body)
		if perByte > maxHeapPerByte {
			t.Errorf("%s: %.0f bytes of heap for each byte, want at most %d", row.name, perByte, maxHeapPerByte)
		}
		if perByte > worst {
			worst, worstOf = perByte, row.name
		}
		t.Logf("%-22s %5.1f MiB of heap for a MiB", row.name, perByte)
	}
	t.Logf("at most %.0f MiB for a MiB (%s), %.0f MiB for the largest invocation", worst, worstOf,
		worst*maxInvocation/(1<<20))
}

// nexusHeadOf returns an HTTP request with these header lines.
func nexusHeadOf(lines string) string {
	return "POST / HTTP/1.1\r\nHost: t.example\r\n" + lines + "\r\n"
}

// TestMemoryOfMessages does the same for the largest messages of a queue, including their settling after a failed call.
func TestMemoryOfMessages(t *testing.T) {
	worst := uint64(0)
	for name, content := range map[string]string{
		"headers": filled(`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://t.example/","headers":{`,
			`"%x":"",`, `}}}`),
		"unknown": filled(`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://t.example/"},`, `"%x":0,`,
			`}`),
		"Nexus headers":  nexusHead(strings.Repeat("a:\r\n", 8500)),
		"Nexus callback": nexusRaw(`"CallBack":"` + in64(nexusHeadOf(strings.Repeat("a:\r\n", 6000))) + `"`),
		"Nexus answer": nexusWith(`"LatestResponse":"` +
			in64("HTTP/1.1 500 x\r\n"+strings.Repeat("a:\r\n", 8000)+"\r\n") + `"`),
	} {
		a := newApp(t, answers(http.StatusServiceUnavailable))
		body := binary(content, goodMetadata)
		before := totalAlloc()
		recorder := a.record(t, body)
		used := totalAlloc() - before
		if recorder.Code != http.StatusOK || len(a.contents(t, mainQueue)) != 1 {
			t.Fatalf("%s: answered %d %s", name, recorder.Code, recorder.Body)
		}
		worst = max(worst, used)
		t.Logf("%-14s %4.1f MiB of heap for a message of %d KiB", name, float64(used)/(1<<20), len(content)>>10)
	}
	if worst > maxHeapPerByte*64<<10 {
		t.Errorf("%d bytes of heap for a message of 64 KiB", worst)
	}
}

// allocated returns the allocated bytes per byte of an invocation.
func allocated(t *testing.T, body string) float64 {
	t.Helper()
	a := newApp(t, caller(func(context.Context, *envelope.Envelope) decision.Outcome {
		return decision.Outcome{Status: http.StatusOK}
	}))
	before := totalAlloc()
	recorder := a.record(t, body)
	used := totalAlloc() - before
	a.wantShortLog(t)
	for _, content := range a.contents(t, poisonQueue) {
		if len(content) > maxContent {
			t.Errorf("answered %d: a dead letter of %d bytes", recorder.Code, len(content))
		}
	}
	return float64(used) / float64(len(body))
}

func totalAlloc() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

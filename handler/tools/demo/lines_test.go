package main

import (
	"strings"
	"testing"
	"time"
)

func TestLines(t *testing.T) {
	const at = `"time":"2026-11-22T10:00:00Z"`
	clock := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC).Local().Format(time.TimeOnly)
	for name, row := range map[string]struct{ line, want string }{
		"delivered": {
			`{"level":"info","request_id":"r1","action":"finish","reason":"delivered","attempt":1,"status":200,` +
				at + `,"message":"settled"}`,
			clock + "  r1  attempt 1: answered 200, delivered\n",
		},
		"rescheduled": {
			`{"level":"info","request_id":"r1","action":"reschedule","reason":"connection","attempt":2,` +
				`"delay":5312.5,` + at + `,"message":"settled"}`,
			clock + "  r1  attempt 2: connection, next in 5.3s\n",
		},
		"callback": {
			`{"level":"info","request_id":"r1","action":"callback","reason":"delivered","attempt":1,"status":200,` +
				at + `,"message":"settled"}`,
			clock + "  r1  attempt 1: answered 200, delivered, callback enqueued\n",
		},
		"malformed": {
			`{"level":"error","message_id":"m1","action":"dead_letter","reason":"malformed","detail":"not JSON",` +
				at + `,"message":"settled"}`,
			clock + "  m1  dead letter, malformed: not JSON\n",
		},
		"gave_up": {`{"level":"error","request_id":"r1","action":"dead_letter","reason":"rejected",` + at +
			`,"message":"Giving up on envelope r1: answered 400"}`, ""},
		"information": {`{"level":"info",` + at + `,"message":"host started"}`, ""},
		"trouble": {
			`{"level":"warn","error":"refused",` + at + `,"message":"queue cannot be read"}`,
			clock + "  queue cannot be read: refused\n",
		},
		"other": {`async-caller: stopped`, "async-caller: stopped\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			l := &lines{out: &out}
			for _, part := range []string{row.line[:5], row.line[5:] + "\n", row.line} { // lines arrive in pieces
				if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatalf("wrote %d bytes, error %v", n, err)
				}
			}
			if out.String() != row.want {
				t.Errorf("got %q, want %q", out.String(), row.want)
			}
		})
	}
}

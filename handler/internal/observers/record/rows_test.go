package record_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// TestNamesOfValues: rows keep the names and types that other versions write and read.
func TestNamesOfValues(t *testing.T) {
	at := time.Date(2026, 11, 21, 9, 15, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		row  any
		want map[string]any
	}{
		"scheduled": {
			record.Row{
				PopReceipt: "receipt", RequestID: "r-1", TargetHost: "t.example", PathPattern: "/{n}", Reason: "busy",
				Status: 503, Cause: "503", Answer: "down", Attempts: 3, CreatedAt: at, NextAttemptAt: at, Deadline: at,
				Organization: "org", Environment: "env", Repeated: true, Content: []byte("{}"),
			},
			map[string]any{
				"popReceipt": "receipt", "requestId": "r-1", "targetHost": "t.example", "route": "/{n}",
				"reason": "busy", "status": int32(503), "cause": "503", "answer": "down", "attempts": int32(3),
				"createdAt": at, "nextAttemptAt": at, "deadline": at, "organization": "org", "environment": "env",
				"repeated": true, "content": []byte("{}"),
			},
		},
		"outcome": {
			record.Outcome{
				Run: "T0KEN", RequestID: "r-1", Attempt: 3, Called: true, Action: "finish", Reason: "delivered",
				Status: 200, TargetHost: "t.example", At: at, Cause: "share",
			},
			map[string]any{
				"requestId": "r-1", "attempts": int32(3), "called": true, "action": "finish", "reason": "delivered",
				"status": int32(200), "targetHost": "t.example", "at": at, "cause": "share",
			},
		},
		"heartbeat": {
			heartbeat.Row{
				App: "app", Version: "0.2.0", HostName: "app.example", Adapter: "host", Queues: "orders", Since: at,
				Cause: "hold mode",
			},
			map[string]any{
				"app": "app", "version": "0.2.0", "hostName": "app.example", "adapter": "host", "queues": "orders",
				"since": at, "cause": "hold mode",
			},
		},
		"setting": {
			setting.Setting{
				Host: "t.example", Member: "rate", Value: "5/s", Since: at, Until: at, By: "anna@ops-7", Reason: "why",
				Problem: "none",
			},
			map[string]any{
				"targetHost": "t.example", "member": "rate", "limit": "5/s", "since": at, "until": at,
				"by": "anna@ops-7", "reason": "why",
			},
		},
	} {
		got, err := rows.Encode(test.row)
		if diff := cmp.Diff(storage.Entity{Values: test.want}, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

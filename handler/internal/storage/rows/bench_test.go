package rows_test

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// scheduled is a row of a scheduled message as a handler writes it.
func scheduled() record.Row {
	return record.Row{
		Key:        storage.Key{Partition: "async-caller", ID: "11111111-2222-3333-4444-555555555555"},
		PopReceipt: strings.Repeat("A", 40), RequestID: "order-4711", TargetHost: "api.example.com",
		PathPattern: "/orders/4711/items", Reason: "temporary_status", Status: 503, Attempts: 3,
		CreatedAt: at, NextAttemptAt: at, Deadline: at, Organization: "org", Environment: "env",
		Cause: "503 Service Unavailable", Answer: strings.Repeat("x", 200), Content: make([]byte, 1<<10),
	}
}

func BenchmarkEncode(b *testing.B) {
	row := scheduled()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rows.Encode(row); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	entity, err := rows.Encode(scheduled())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if rows.Decode[record.Row](entity).Status != 503 {
			b.Fatal("not decoded")
		}
	}
}

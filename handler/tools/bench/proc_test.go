package main

import (
	"math"
	"testing"
	"time"
)

func TestParseCPU(t *testing.T) {
	for name, test := range map[string]struct {
		stat string
		want time.Duration
		bad  bool
	}{
		"plain":       {"7 (floor) S 1 7 7 0 -1 4194304 1 0 0 0 120 30 0 0 20 0 8 0 1 1 1", 1500 * time.Millisecond, false},
		"hostile":     {"7 (a) R 9 (x) S 1 7 7 0 -1 4194304 1 0 0 0 1 2 0 0 20 0 8 0 1 1 1", 30 * time.Millisecond, false},
		"short":       {"7 (floor) S 1 7", 0, true},
		"no_name":     {"", 0, true},
		"not_numbers": {"7 (floor) S 1 7 7 0 -1 4194304 1 0 0 0 x 30 0", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseCPU(test.stat)
			if got != test.want || (err != nil) != test.bad {
				t.Errorf("%v, %v, want %v", got, err, test.want)
			}
		})
	}
}

func TestParseKiB(t *testing.T) {
	const status = "Name:\tfloor\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nVmBad:\t x kB\n"
	for name, test := range map[string]struct {
		line string
		want int64
		bad  bool
	}{
		"now":     {"VmRSS:", 1 << 20, false},
		"peak":    {"VmHWM:", 2 << 20, false},
		"garbage": {"VmBad:", 0, true},
		"missing": {"VmSwap:", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseKiB(status, test.line)
			if got != test.want || (err != nil) != test.bad {
				t.Errorf("%v, %v, want %v", got, err, test.want)
			}
		})
	}
}

func TestParseFiles(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n"
	for name, test := range map[string]struct {
		line string
		want int
		bad  bool
	}{
		"soft_counts": {"Max open files            1024                 20000                files     \n", 1024, false},
		"unlimited":   {"Max open files            unlimited            unlimited            files     \n", math.MaxInt32, false},
		"garbage":     {"Max open files            x                    20000                files     \n", 0, true},
		"empty":       {"Max open files\n", 0, true},
		"missing":     {"Max processes             1                    1                    processes \n", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseFiles(head + test.line)
			if got != test.want || (err != nil) != test.bad {
				t.Errorf("%d, %v, want %d", got, err, test.want)
			}
		})
	}
}

func TestParseWaiting(t *testing.T) {
	const (
		head   = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
		server = "   1: 0100007F:1F90 0100007F:C350 01 00000010:00000200 00:00000000 00000000     0        0 1 1 0 20 4 30 10 -1\n"
		client = "   2: 0100007F:C350 0100007F:1F90 01 00000003:0000FC00 00:00000000 00000000     0        0 1 1 0 20 4 30 10 -1\n"
		other  = "   3: 0100007F:C351 0100007F:1F91 01 00000000:0000FC00 00:00000000 00000000     0        0 1 1 0 20 4 30 10 -1\n"
	)
	for name, test := range map[string]struct {
		sockets string
		want    int64
		bad     bool
	}{
		"nothing":          {head, 0, false},
		"sent_by_server":   {head + server, 0x10, false},
		"waits_for_client": {head + client, 0xFC00, false},
		"both":             {head + server + client, 0xFC10, false},
		"other_server":     {head + other, 0, false},
		"short_line":       {head + "  1: x\n", 0, false},
		"garbage":          {"   1: 0100007F:1F90 0100007F:C350 01 x:y 00:0\n", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseWaiting(test.sockets, 8080)
			if got != test.want || (err != nil) != test.bad {
				t.Errorf("%d, %v, want %d", got, err, test.want)
			}
		})
	}
}

package capacity

import (
	"math"
	"testing"
	"time"

	"asynccaller/handler/internal/queue"
)

func TestWeight(t *testing.T) {
	for bytes, want := range map[int]float64{1: 1, 1024: 1, 1536: 1.5, 64 << 10: 64} {
		if got := weight(bytes); got != want {
			t.Errorf("%d bytes count %v, want %v", bytes, got, want)
		}
	}
}

func TestTextBytes(t *testing.T) {
	for _, bytes := range []int{1, 2, 3, 4, 1024, 48 << 10} {
		content := make([]byte, bytes)
		for _, encoding := range []queue.Encoding{queue.Base64, queue.None} {
			q := Question{MessageBytes: bytes, Host: Host{Encoding: encoding}}
			if want := len(encoding.Encode(content)); q.textBytes() != want {
				t.Errorf("%d bytes, %s: %d on the queue, want %d", bytes, encoding, q.textBytes(), want)
			}
		}
	}
}

// idleHost hardly polls, so that messages alone count.
func idleHost() Host {
	h := Shipped()
	h.MaxPollingInterval, h.Encoding, h.QueueFunctions = 24*time.Hour, queue.None, 1
	return h
}

// Three messages a call, as many KiB as it has for the put and the get.
func TestQueuesAndAccounts(t *testing.T) {
	for name, test := range map[string]struct {
		rate             float64
		bytes            int
		spare            float64
		queues, accounts int
		byCount          int
	}{
		"one_is_enough":      {640, 1 << 10, 0, 1, 1, 1},
		"just_not":           {670, 1 << 10, 0, 2, 1, 2},
		"spare":              {640, 1 << 10, 0.25, 2, 1, 2},
		"size":               {200, 10 << 10, 0, 3, 1, 1},
		"an_account_is_full": {6600, 1 << 10, 0, 10, 1, 10},
		"two_accounts":       {7000, 1 << 10, 0, 12, 2, 11},
	} {
		t.Run(name, func(t *testing.T) {
			l := mustPlan(t, question(func(q *Question) {
				q.Rate, q.MessageBytes, q.Spare, q.Latency, q.Host = test.rate, test.bytes, test.spare, 10*time.Millisecond, idleHost()
				q.StorageLatency = 100 * time.Millisecond // hardly any receive in vain while there are messages
				q.Host.BatchSize, q.Host.NewBatchThreshold = 32, 1000
			})).Layout
			if l.Queues != test.queues || l.Accounts != test.accounts || l.QueuesByCount != test.byCount || !l.Enough {
				t.Errorf("%d queues (%d if size does not count) on %d accounts, want %d (%d) on %d: %+v",
					l.Queues, l.QueuesByCount, l.Accounts, test.queues, test.byCount, test.accounts, l)
			}
		})
	}
}

// Of what is given too little is said so, whichever of the two it is.
func TestGivenLayout(t *testing.T) {
	for name, test := range map[string]struct {
		queues, instances         int
		wantQueues, wantInstances int
		enough                    bool
	}{
		"nothing":             {0, 0, 2, 70, true},
		"more_queues":         {7, 0, 7, 20, true},
		"one_queue":           {1, 0, 1, 140, false},
		"few_instances":       {0, 10, 2, 10, false},
		"no_spare":            {2, 56, 2, 56, true},
		"one_short_of_enough": {2, 55, 2, 55, false},
		"many_instances":      {0, 100, 2, 100, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := mustPlan(t, question(func(q *Question) { q.Queues, q.Instances = test.queues, test.instances })).Layout
			if l.Queues != test.wantQueues || l.Instances != test.wantInstances || l.Enough != test.enough {
				t.Errorf("%+v, want %d queues, %d instances, enough %v", l, test.wantQueues, test.wantInstances, test.enough)
			}
			if l.FlexInstances != l.Queues*l.Instances {
				t.Errorf("%d instances where each queue has its own", l.FlexInstances)
			}
		})
	}
}

// An account has what its queues take, what goes to poison queues, and what looks into queues without calls.
func TestTraffic(t *testing.T) {
	q := question(func(q *Question) { q.Rate, q.Failing, q.Host.QueueFunctions, q.Host.Encoding = 10, 1, 5, queue.None }).complete()
	d := newDemand(q)
	one := d.traffic(split{accounts: 1, queues: 2, instances: 3})
	if want := 3 * 3 / 2.01; math.Abs(one.idle-want) > 1e-9 { // 3 instances look into 3 queues every 2.01 s
		t.Errorf("%v receives/s of queues without calls, want %v", one.idle, want)
	}
	if want := (50*3 + one.vain) / 2; math.Abs(one.ofQueue-want) > 1e-9 { // 5 attempts for each of 10 calls
		t.Errorf("a queue takes %v, want %v", one.ofQueue, want)
	}
	if want := 2*one.ofQueue + 10 + one.idle; math.Abs(one.ofAccount-want) > 1e-9 { // 10 dead letters/s
		t.Errorf("an account takes %v, want %v", one.ofAccount, want)
	}
	two := d.traffic(split{accounts: 2, queues: 2, instances: 3})
	if want := two.ofQueue + (10+two.idle)/2; math.Abs(two.ofAccount-want) > 1e-9 {
		t.Errorf("one of two accounts takes %v, want %v", two.ofAccount, want)
	}
}

func TestMemory(t *testing.T) {
	for name, test := range map[string]struct {
		bytes   int
		perCall int64
	}{
		"tiny":    {10, 60 << 10},
		"small":   {1 << 10, 60 << 10},
		"between": {24<<10 + 512, 105 << 10},
		"large":   {48 << 10, 150 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			m := mustPlan(t, question(func(q *Question) { q.Rate, q.MessageBytes, q.Queues = 1, test.bytes, 3 })).Memory
			if m.PerCall != test.perCall || m.Places != 72 || m.PerInstance != 14<<20+72*test.perCall {
				t.Errorf("%+v, want %d a call and 72 places", m, test.perCall)
			}
		})
	}
}

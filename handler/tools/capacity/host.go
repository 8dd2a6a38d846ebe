package capacity

import "math"

const (
	// shortestPoll is the host's first wait after a receive that found nothing; each further one is
	// about twice as long.
	shortestPoll = 0.1
)

// listener is what the host runs for each queue function on each instance. It receives up to batch messages,
// starts them all, waits until no more than threshold are in flight, and receives again at once. Times are
// seconds.
type listener struct {
	batch, threshold int
	// receive is how long one receive takes.
	receive float64
	// longest is the longest wait after a receive that found nothing.
	longest float64
}

// places is how many messages can be in flight.
func (l listener) places() int { return l.batch + l.threshold }

// surely is how many attempts a second are made at least while the queue has enough of them, if each is held
// for that long on average, however differently.
//
// Outside of receives more than threshold are in flight, so on average at least
//
//	n >= (threshold+1) * (1 - share of the time in receives)
//
// With full batches x attempts a second need x/batch receives. By Little's law n = x*held, so
//
//	x*held >= (threshold+1) * (1 - x/batch*receive)
//
// which is solved for x. It is reached when a few calls of each batch take almost all of the time.
func (l listener) surely(held float64) float64 {
	least := float64(l.threshold + 1)
	return least / (held + least*l.receive/float64(l.batch))
}

// usually is the same where latencies are spread exponentially. With k in flight one ends after held/k, so
// the way from all places down to the threshold takes held * (1/places + ... + 1/(threshold+1)), after which
// there is a batch more.
func (l listener) usually(held float64) float64 {
	sum := 0.0
	for k := l.threshold + 1; k <= l.places(); k++ {
		sum += 1 / float64(k)
	}
	return float64(l.batch) / (held*sum + l.receive)
}

// atMost is the same with every place taken all the time, and receives as fast as storage answers them.
func (l listener) atMost(held float64) float64 {
	return min(float64(l.places())/held, float64(l.batch)/l.receive)
}

func (l listener) rates(held float64) Listener {
	return Listener{
		Places:  l.places(),
		Surely:  Figure(l.surely(held)),
		Usually: Figure(l.usually(held)),
		AtMost:  Figure(l.atMost(held)),
	}
}

// thresholdFor is the lowest threshold with which surely makes that many attempts a second; false if
// receives alone take too long.
func (l listener) thresholdFor(attempts, held float64) (int, bool) {
	left := 1/attempts - l.receive/float64(l.batch)
	if left <= 0 {
		return 0, false
	}
	return max(up(held/left)-1, 0), true
}

// polls estimates how many receives a second find messages, and how many find nothing, where messages come
// to this listener at random, rate a second. It is rather too high: where listeners share a queue, those
// that found something last look more often and leave less to the others, and none receives while more than
// the threshold are in flight.
//
// After a receive that found something the next one comes at once, then after 0.1 s, 0.2 s and so on up to
// the longest wait. Each is made only if nothing came until the one before, which has the probability
// exp(-rate * its time). Receives and time from one find to the next are sums over that.
func (l listener) polls(rate float64) (found, vain float64) {
	polls, cycle, at, wait := 0.0, 0.0, 0.0, 0.0
	for n := 0; wait < l.longest; n++ {
		made := math.Exp(-rate * at)
		polls += made
		cycle += made * (wait + l.receive)
		at += wait + l.receive
		wait = nextWait(n)
	}
	gap := l.longest + l.receive // from here on the series is geometric
	rest := math.Exp(-rate*at) / -math.Expm1(-rate*gap)
	polls += rest
	cycle += rest * gap
	return max(1/cycle, rate/float64(l.batch)), (polls - 1) / cycle
}

// nextWait is the wait before the receive after the n-th that found nothing: 0.1 s, then 0.1 s and 0.1 s
// times a power of two.
func nextWait(n int) float64 {
	if n == 0 {
		return shortestPoll
	}
	return shortestPoll * (1 + math.Pow(2, float64(n-1)))
}

// idle is how many receives a second an empty queue gets.
func (l listener) idle() float64 { return 1 / (l.longest + l.receive) }

package capacity

import "math"

// month is how long a month is on Azure's bills: 730 hours.
const month = 730 * 3600

// The kinds of requests, by what they are for.
const (
	senderPuts     = "sender_puts"
	receivesFound  = "receives_that_find_messages"
	receivesVain   = "receives_in_vain"
	receivesUnused = "receives_of_queues_without_calls"
	deletes        = "host_deletes"
	reschedules    = "reschedules"
	deadLetters    = "dead_letters"
	leaseRenewals  = "lease_renewals"
)

// cost counts requests. With ASYNC_CALLER_RESCHEDULE=update it is the same: the update is one, and so is the
// host's delete, which storage refuses.
func (d demand) cost(s split) Cost {
	t := d.traffic(s)
	var c Cost
	total := 0.0
	for _, item := range []struct {
		name      string
		perSecond float64
	}{
		{senderPuts, d.rate},
		{receivesFound, t.found},
		{receivesVain, t.vain},
		{receivesUnused, t.idle},
		{deletes, d.attempts},
		{reschedules, d.reschedules},
		{deadLetters, d.givenUp},
		{leaseRenewals, 0}, // the host renews after 5 minutes; no call lasts so long
	} {
		total += item.perSecond
		c.Items = append(c.Items, Item{item.name, d.perMillion(item.perSecond), perMonth(item.perSecond)})
	}
	c.PerMillion, c.PerMonth = d.perMillion(total), perMonth(total)
	return c
}

func (d demand) perMillion(perSecond float64) int64 {
	return int64(math.Round(perSecond / d.rate * million))
}

func perMonth(perSecond float64) int64 { return int64(math.Round(perSecond * month)) }

const million = 1_000_000

// Ways for a call to end.
const (
	endAtOnce       = "delivered_at_once"
	endOneRetry     = "delivered_after_1_retry"
	endThreeRetries = "delivered_after_3_retries"
	endCallback     = "delivered_at_once_with_callback"
	endDeadLetter   = "dead_letter_at_once"
)

// ends counts the requests of a million calls for each way to end. A message costs its put, its delete and
// its share of a receive; a retry and a callback are a message more, a dead letter is a put more. Receives
// that find nothing come on top.
func ends(batch int) []End {
	var all []End
	for _, end := range []struct {
		name             string
		messages, writes int64 // of one call: those that the host handles, and what the handler writes
	}{
		{endAtOnce, 1, 0},
		{endOneRetry, 2, 1},
		{endThreeRetries, 4, 3},
		{endCallback, 2, 1},
		{endDeadLetter, 1, 1},
	} {
		e := End{
			Name:          end.name,
			SenderPuts:    million,
			Writes:        end.writes * million,
			Deletes:       end.messages * million,
			ReceivesLeast: int64(math.Ceil(float64(end.messages*million) / float64(batch))),
			ReceivesMost:  end.messages * million,
		}
		without := e.SenderPuts + e.Writes + e.Deletes
		e.Least, e.Most = without+e.ReceivesLeast, without+e.ReceivesMost
		all = append(all, e)
	}
	return all
}

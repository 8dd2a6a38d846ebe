package instance

import (
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/gates/admission"
	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/observers/deliverylog"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/targets"
)

// Path has what the gates and the observers of the message path need. The parts that are nil are left out.
type Path struct {
	Guard guard.Rules
	// NewBatchThreshold is the host's.
	NewBatchThreshold int
	Settings          *setting.Watcher
	Credentials       *credential.Store
	History           *history.History
	// KeepHistory says what the history keeps, unless the profile of a target does.
	KeepHistory targets.History
	Limits      *limit.Limits
	// Record is that of scheduled messages, and Outcomes that of messages of runs.
	Record, Outcomes *background.Writer
	Sight            *sight.Sight
	Refusals         *Refusals
	Log              zerolog.Logger
}

// Connect gives a deliverer its gates and observers, in their order. It returns the room, which posts take as well.
func (p Path) Connect(d *delivery.Deliverer) *admission.Room {
	now := func() time.Time { return d.Now() }
	room := admission.NewRoom(p.NewBatchThreshold, outbound.CallBytes, now)
	breakers := admission.NewBreakers(now, p.Log)
	shares := admission.NewShares(room, breakers, now)
	calls := history.Deliveries{History: p.History, Keep: p.KeepHistory, Now: now}

	// A target that must not be called, or is paused, takes nothing of what the gates behind count. They count by the
	// profile that is in force.
	d.Gates = []delivery.Gate{outbound.Guard{Rules: p.Guard}}
	if p.Settings != nil {
		d.Gates = append(d.Gates, p.Settings)
	}
	// Room is the first that counts, because messages that wait at the gates behind it take memory. A target that is
	// down costs no request to the tables of the history and of limits.
	d.Gates = append(d.Gates, room, breakers)
	if p.Credentials != nil { // a call that waits for a token holds neither a turn nor a share
		d.Gates = append(d.Gates, p.Credentials)
	}
	if p.History != nil { // before the limit: a duplicate takes no turn
		d.Gates, d.Delivered = append(d.Gates, calls), calls
	}
	if p.Limits != nil {
		d.Gates = append(d.Gates, p.Limits)
	}
	// A message takes its target's share when its call begins, and not while it waits for its turn.
	d.Gates = append(d.Gates, shares)
	if p.Sight != nil { // the last: it sees how long calls last
		d.Gates = append(d.Gates, p.Sight)
	}

	if d.Forgeable { // an invented message would remove a row
		p.Record, p.Outcomes = nil, nil
	}
	d.Observers = nil
	if p.Refusals != nil {
		d.Observers = append(d.Observers, p.Refusals)
	}
	if p.Sight != nil {
		p.Sight.IsOpen = breakers.IsOpen
		d.Observers = append(d.Observers, p.Sight)
	}
	if p.Record != nil {
		d.Observers = append(d.Observers, record.Observer{Writer: p.Record, Why: p.Sight.Why})
	}
	if p.Outcomes != nil {
		d.Observers = append(d.Observers, record.OutcomeObserver{Writer: p.Outcomes})
	}
	if p.History != nil {
		d.Observers = append(d.Observers, calls)
	}
	d.Observers = append(d.Observers, deliverylog.New(p.Log)) // the line says that all is done
	return room
}

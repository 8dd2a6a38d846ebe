package retry

import (
	"encoding/json"
	"errors"
	"time"

	"asynccaller/handler/strictjson"
)

// maxScheduleLength bounds what one message can make us hold.
const maxScheduleLength = 1000

// ParseSpec reads the member `retry` of an envelope: a policy's name or an object with parameters. Its
// errors name the parameter. It checks each value, [Spec.Policy] checks them together.
func ParseSpec(value json.RawMessage) (Spec, error) {
	if value[0] == '"' {
		name, err := strictjson.String(value)
		if err == nil && name == "" {
			err = errors.New("the policy's name is empty")
		}
		return Spec{Name: name}, err
	}
	members, err := strictjson.Members(value)
	if err != nil {
		return Spec{}, errors.New("want a policy's name or an object with its parameters")
	}
	var spec Spec
	for _, m := range members {
		if err := spec.set(m); err != nil {
			return Spec{}, strictjson.In(m.Name, err)
		}
	}
	return spec, nil
}

func (s *Spec) set(m strictjson.Member) (err error) {
	switch m.Name {
	case "schedule":
		s.Schedule, err = parseSchedule(m.Value)
	case "baseDelay":
		s.BaseDelay, err = positive(m.Value)
	case "factor":
		if s.Factor, err = strictjson.Number(m.Value); err == nil && s.Factor < 1 {
			err = errors.New("want a number of at least 1: waits never get shorter")
		}
	case "maxDelay":
		s.MaxDelay, err = positive(m.Value)
	case "maxAttempts":
		s.MaxAttempts, err = strictjson.Int(m.Value, 1, 1_000_000)
	default:
		err = errors.New("unknown parameter: use schedule, baseDelay, factor, maxDelay, maxAttempts")
	}
	return err
}

func parseSchedule(value json.RawMessage) ([]time.Duration, error) {
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, err
	}
	if len(elements) > maxScheduleLength {
		return nil, errors.New("the list is longer than 1000 delays")
	}
	schedule := make([]time.Duration, len(elements))
	for i, element := range elements {
		if schedule[i], err = strictjson.Duration(element); err != nil {
			return nil, strictjson.In(strictjson.Index(i), err)
		}
	}
	return schedule, nil
}

func positive(value json.RawMessage) (time.Duration, error) {
	d, err := strictjson.Duration(value)
	if err == nil && d == 0 {
		err = errors.New("want a duration above zero")
	}
	return d, err
}

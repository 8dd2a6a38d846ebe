package retry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/strictjson"
)

const (
	// maxScheduleLength bounds what one message can make us hold.
	maxScheduleLength = 1000
	maxAttempts       = 1_000_000
)

// Defaults of WCF's queue bindings, and of the policy fixed.
const (
	defaultReceiveRetryCount = 5
	defaultMaxRetryCycles    = 2
	defaultRetryCycleDelay   = 30 * time.Minute
	defaultFixedDelay        = time.Minute
)

// Spec is a policy as an envelope or retry.json states it: a name, or parameters. Zero fields take the
// defaults of the kind.
type Spec struct {
	// Name chooses a policy and excludes all other fields.
	Name string
	// Kind is exponential, nexus, io, fixed, list or cycles; when empty, list with a schedule and
	// exponential without.
	Kind string
	// Schedule lists the waits of a list one by one; the last one repeats. They are kept exactly,
	// without jitter.
	Schedule []time.Duration
	// BaseDelay is the first wait of exponential, and every wait of fixed. Beside a schedule it and
	// Factor have no meaning.
	BaseDelay time.Duration
	Factor    float64
	// MaxDelay caps every wait of exponential and list.
	MaxDelay    time.Duration
	MaxAttempts int
	// Cycles are the parameters of cycles.
	Cycles CycleSpec
}

// CycleSpec states a policy in WCF's words. Nil and zero fields take WCF's defaults.
type CycleSpec struct {
	ReceiveRetryCount    *int
	MaxRetryCycles       *int
	RetryCycleDelay      time.Duration
	ReceiveErrorHandling ErrorHandling
}

// Policy checks the spec and makes a policy of it. A name is one of the built-in policies'; see
// [Policies.Resolve] for the operator's own. Errors name the parameter.
func (s Spec) Policy() (Policy, error) {
	if s.Name != "" {
		return Named(s.Name)
	}
	if s.BaseDelay < 0 || s.MaxDelay < 0 || s.Cycles.RetryCycleDelay < 0 || slices.ContainsFunc(s.Schedule, negative) {
		return Policy{}, errors.New("a delay cannot be negative")
	}
	kind := s.Kind
	switch {
	case kind == "" && s.Schedule != nil:
		kind = kindList
	case kind == "":
		kind = kindExponential
	}
	policy := Policy{Name: kind, MaxAttempts: s.MaxAttempts}
	var err error
	switch kind {
	case kindExponential:
		policy.delays, err = s.exponential()
	case kindList:
		policy.delays, err = s.list()
	case kindNexus:
		policy.delays = nexus{}
	case kindIO:
		policy.delays = ioFunctions{}
		if policy.MaxAttempts == 0 || policy.MaxAttempts > ioAttempts() {
			policy.MaxAttempts = ioAttempts()
		}
	case kindFixed:
		d := orDefault(s.BaseDelay, defaultFixedDelay)
		policy.delays = list{[]time.Duration{d}, d}
	case kindCycles:
		policy, err = s.cycles()
	default:
		err = strictjson.In("policy", errors.New(`want exponential, nexus, io, fixed, list or cycles; a policy of retry.json is asked for by name alone, "retry":"name"`))
	}
	if err != nil {
		return Policy{}, err
	}
	return policy, nil
}

func (s Spec) exponential() (delays, error) {
	maxDelay := orDefault(s.MaxDelay, defaultMaxDelay)
	e := exponential{orDefault(s.BaseDelay, min(defaultBaseDelay, maxDelay)), orDefault(s.Factor, defaultFactor), maxDelay}
	switch {
	case e.factor < 1 || math.IsNaN(e.factor) || math.IsInf(e.factor, 0):
		return nil, strictjson.In("factor", fmt.Errorf("%v is below 1: waits never get shorter", s.Factor))
	case e.base > e.max:
		return nil, strictjson.In("maxDelay", fmt.Errorf("%v is shorter than baseDelay %v", e.max, e.base))
	}
	return e, nil
}

func (s Spec) list() (delays, error) {
	if len(s.Schedule) == 0 {
		return nil, strictjson.In("schedule", errors.New("the list is empty"))
	}
	for i := 1; i < len(s.Schedule); i++ {
		if s.Schedule[i] < s.Schedule[i-1] {
			err := fmt.Errorf("%v is shorter than the delay before it, %v: waits never get shorter", s.Schedule[i], s.Schedule[i-1])
			return nil, strictjson.In("schedule"+strictjson.Index(i), err)
		}
	}
	return list{s.Schedule, orDefault(s.MaxDelay, math.MaxInt64)}, nil
}

func (s Spec) cycles() (Policy, error) {
	retries, rounds := defaultReceiveRetryCount, defaultMaxRetryCycles
	if s.Cycles.ReceiveRetryCount != nil {
		retries = *s.Cycles.ReceiveRetryCount
	}
	if s.Cycles.MaxRetryCycles != nil {
		rounds = *s.Cycles.MaxRetryCycles
	}
	if retries < 0 || rounds < 0 || retries >= maxAttempts/(rounds+1) {
		return Policy{}, strictjson.In("receiveRetryCount", fmt.Errorf("more than %d attempts in all, or fewer than one", maxAttempts))
	}
	return Policy{
		Name:          kindCycles,
		MaxAttempts:   (retries + 1) * (rounds + 1),
		ErrorHandling: s.Cycles.ReceiveErrorHandling,
		delays:        cycles{retries + 1, orDefault(s.Cycles.RetryCycleDelay, defaultRetryCycleDelay)},
	}, nil
}

func negative(d time.Duration) bool { return d < 0 }

func orDefault[T time.Duration | float64](value, fallback T) T {
	if value == 0 {
		return fallback
	}
	return value
}

// validName is what the operator may call a policy.
var validName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// ParsePolicies reads retry.json: a JSON object of policies by name, each with parameters as in an
// envelope. The error joins every problem.
func ParsePolicies(content []byte) (Policies, error) {
	members, err := strictjson.Object(content)
	if err != nil {
		return nil, err
	}
	policies := Policies{}
	var problems []error
	for _, m := range members {
		policy, err := parsePolicy(m)
		if err != nil {
			problems = append(problems, strictjson.In(m.Name, err))
			continue
		}
		policies[m.Name] = policy
	}
	return policies, errors.Join(problems...)
}

func parsePolicy(m strictjson.Member) (Policy, error) {
	if !validName.MatchString(m.Name) {
		return Policy{}, errors.New("not a policy's name: a letter, then letters, digits, - and _, at most 64 in all")
	}
	if _, err := Named(m.Name); err == nil || m.Name == kindList {
		return Policy{}, errors.New("is the name of a built-in policy: choose another")
	}
	spec, err := ParseSpec(m.Value)
	if err != nil {
		return Policy{}, err
	}
	policy, err := spec.Policy()
	policy.Name = m.Name
	return policy, err
}

// names lists the policies that there are, for an error.
func (own Policies) names() string {
	builtIn := []string{kindCycles, kindExponential, kindFixed, kindIO, kindNexus}
	return strings.Join(slices.Concat(slices.Sorted(maps.Keys(own)), builtIn), ", ")
}

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
	members, err := strictjson.Object(value)
	if err != nil {
		return Spec{}, errors.New("want a policy's name or an object with its parameters")
	}
	var spec Spec
	for _, m := range members {
		if err := spec.set(m); err != nil {
			return Spec{}, strictjson.In(m.Name, err)
		}
	}
	return spec, spec.checkParameters(members)
}

func (s *Spec) set(m strictjson.Member) (err error) {
	switch m.Name {
	case "policy":
		s.Kind, err = strictjson.String(m.Value)
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
		s.MaxAttempts, err = strictjson.Int(m.Value, 1, maxAttempts)
	default:
		err = s.Cycles.set(m)
	}
	return err
}

func (c *CycleSpec) set(m strictjson.Member) (err error) {
	var n int
	switch m.Name {
	case "receiveRetryCount":
		n, err = strictjson.Int(m.Value, 0, maxAttempts)
		c.ReceiveRetryCount = &n
	case "maxRetryCycles":
		n, err = strictjson.Int(m.Value, 0, maxAttempts)
		c.MaxRetryCycles = &n
	case "retryCycleDelay":
		c.RetryCycleDelay, err = positive(m.Value)
	case "receiveErrorHandling":
		c.ReceiveErrorHandling, err = parseErrorHandling(m.Value)
	default:
		err = errors.New("unknown parameter: use policy, " + strings.Join(parametersOf(""), ", "))
	}
	return err
}

func parseErrorHandling(value json.RawMessage) (ErrorHandling, error) {
	text, err := strictjson.String(value)
	if err != nil {
		return "", err
	}
	switch handling := ErrorHandling(text); handling {
	case Fault, Drop, Reject, Move:
		return handling, nil
	}
	return "", errors.New(`want "Fault", "Drop", "Reject" or "Move"`)
}

// checkParameters finds parameters that the kind does not have: they would be passed over in silence.
func (s Spec) checkParameters(members []strictjson.Member) error {
	kind := s.Kind
	if kind == "" && s.Cycles != (CycleSpec{}) {
		return errors.New(`parameters of cycles need "policy":"cycles" beside them`)
	}
	for _, m := range members {
		if m.Name != "policy" && !slices.Contains(parametersOf(kind), m.Name) {
			return strictjson.In(m.Name, fmt.Errorf("has no meaning for policy %s", strictjson.Printable(kind)))
		}
	}
	return nil
}

// parametersOf lists the parameters of a kind; of all kinds when it is empty or unknown.
func parametersOf(kind string) []string {
	switch kind {
	case kindExponential:
		return []string{"baseDelay", "factor", "maxDelay", "maxAttempts"}
	case kindList:
		return []string{"schedule", "maxDelay", "maxAttempts"}
	case kindFixed:
		return []string{"baseDelay", "maxAttempts"}
	case kindNexus, kindIO:
		return []string{"maxAttempts"}
	case kindCycles:
		return []string{"receiveRetryCount", "maxRetryCycles", "retryCycleDelay", "receiveErrorHandling"}
	}
	return []string{
		"schedule", "baseDelay", "factor", "maxDelay", "maxAttempts",
		"receiveRetryCount", "maxRetryCycles", "retryCycleDelay", "receiveErrorHandling",
	}
}

func parseSchedule(value json.RawMessage) ([]time.Duration, error) {
	elements, err := strictjson.Elements(value)
	if err != nil {
		return nil, err
	}
	if len(elements) > maxScheduleLength {
		return nil, fmt.Errorf("the list is longer than %d delays", maxScheduleLength)
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

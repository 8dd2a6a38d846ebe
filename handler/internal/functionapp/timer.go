package functionapp

import "fmt"

// noTimerRetry explains why a timer function has no retry policy.
const noTimerRetry = "remove it: a run that fails is made again at its next time"

// Timer is a timer-trigger function: one folder with a function.json.
type Timer struct {
	// Name is the folder's name, and the path of the host's POST.
	Name string
	// Binding is the trigger's binding name: the member of Data that holds the timer's state.
	Binding string
	// Schedule is when the host runs it.
	Schedule Schedule
	// RunOnStartup has the host run it also each time that the host starts.
	RunOnStartup bool
}

// newTimer checks a timer trigger. Its useMonitor only says whether the real host remembers the schedule.
func newTimer(name string, b binding, environ []string) (Timer, []error) {
	problems := nameProblems(name, b.Name, "timer")
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	timer := Timer{Name: name, Binding: b.Name}
	text, err := resolveName(b.Schedule, environ)
	if err == nil {
		timer.Schedule, err = ParseSchedule(text)
	}
	if err != nil {
		problem("schedule %q: %w", b.Schedule, err)
	}
	switch atStart := b.RunOnStartup.(type) {
	case nil:
	case bool:
		timer.RunOnStartup = atStart
	default:
		problem("runOnStartup is %q: give true or false", fmt.Sprint(atStart))
	}
	return timer, problems
}

// Package demo shows the product at work on a machine without anything else: queues and tables in memory, a worker and
// a flaky target in one process, and the commands of a user. It also has the messages that `make run` shows.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/internal/program/logview"
	"asynccaller/handler/internal/program/work"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/emulator"
)

const (
	// StayPort is the first of the three ports of a demo that stays, unless the user chooses another: the target's is
	// that of `make run`, so that commands in a shell's history work in both.
	StayPort = TargetPort - 2
	// TargetPort is the port of the target of a demo that stays.
	TargetPort = 8099
	// LastPort is the largest number of a first port.
	LastPort = 65535 - 2
)

// appSetting is the setting with the name of the app.
const appSetting = config.Prefix + "APP"

const (
	// polling is the longest time between two polls of a queue: nobody pays for them.
	polling = 200 * time.Millisecond
	// grace is how long a stop waits for the calls in flight. Nothing survives it anyway.
	grace = time.Second
	// mostIDs limits the request ids that the target remembers while the demo stays.
	mostIDs = 100_000
)

// ErrApp means that the app of a folder is invalid.
var ErrApp = errors.New("the app does not start")

// Options configures a demo. Those without a comment are required.
type Options struct {
	// Executable is that of the commands, and Name how the user has called it.
	Executable, Name string
	Version          string
	Environ          []string
	// Stay keeps a second app running after the check, on empty queues, until ctx ends.
	Stay bool
	// App is the folder of an app that stays in the place of the demo's own, without a check; may be empty.
	App string
	// Port is the first of three ports: those of queues, tables and the target. 0 means [StayPort] if the demo stays,
	// and otherwise free ports. The check of a demo that stays has free ports.
	Port int
	// Allow has what may be called beside public addresses and the target, as [guard.AllowSetting]; may be empty.
	Allow          string
	Stdout, Stderr io.Writer
}

// Run checks that an app delivers. If the demo stays, it then runs an app until ctx ends.
func Run(ctx context.Context, o Options) (err error) {
	fmt.Fprintln(o.Stderr, "A worker, a flaky target, and a stand-in for Azure Storage in memory, for development "+
		"only: it keeps nothing.")
	var staying *system
	if o.Stay || o.App != "" { // a port that is used is known before the check
		if o.Port == 0 {
			o.Port = StayPort
		}
		staying, err = open(ctx, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, staying.close()) }()
		staying.target.Forget(mostIDs)
		if o.App != "" {
			return staying.stay(ctx)
		}
		o.Port = 0
	}
	checked, err := open(ctx, o)
	if err != nil {
		return err
	}
	err = errors.Join(checked.check(ctx), checked.close())
	if err != nil || staying == nil {
		return err
	}
	return staying.stay(ctx)
}

// system has all parts of a demo.
type system struct {
	Options

	// folder has the app folder and, in another one, the journals of commands. Base is the environment without what the
	// demo sets.
	folder   string
	base     []string
	emulator *emulator.Server
	target   *target.Target
	store    *azure.Queues
	// stop stops the worker, ended is closed then, and err is why it has ended.
	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// open starts all parts but the worker. The caller closes the system.
func open(ctx context.Context, o Options) (s *system, err error) {
	s = &system{Options: o, stop: func() {}, ended: make(chan struct{})}
	close(s.ended)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.folder, err = os.MkdirTemp("", "async-caller-demo-")
	if err != nil {
		return s, err
	}
	s.base = WithoutSettings(o.Environ)
	if o.App == "" {
		err = WriteApp(s.app())
	} else {
		err = s.copyApp()
	}
	if err != nil {
		return s, err
	}
	ports := emulator.Options{}
	targetPort := 0
	if o.Port != 0 {
		ports = emulator.Options{QueuePort: o.Port, TablePort: o.Port + 1}
		targetPort = o.Port + 2
	}
	s.emulator, err = emulator.Start(ctx, ports)
	if err != nil {
		return s, o.portError(err)
	}
	s.target, err = target.StartAt(ctx, targetPort)
	if err != nil {
		return s, o.portError(err)
	}
	connection, err := azure.ParseConnection(s.environ(), storage.ConnectionName)
	if err != nil {
		return s, err
	}
	s.store, err = azure.Open(connection)
	return s, err
}

// copyApp copies the user's app, without the storage that its local.settings.json names, and adds the settings of that
// file to the environment.
func (s *system) copyApp() error {
	all, err := functionapp.WithLocalSettings(s.App, s.base)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrApp, err)
	}
	s.base = slices.DeleteFunc(all, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(strings.ToLower(name), strings.ToLower(storage.ConnectionName)) ||
			name == appSetting || name == guard.AllowSetting
	})
	err = CopyApp(s.App, s.app())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrApp, err)
	}
	err = os.Remove(filepath.Join(s.app(), functionapp.LocalSettings))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// portError says what to do about ports that the user can choose.
func (o Options) portError(err error) error {
	if o.Port == 0 {
		return err
	}
	return fmt.Errorf("%w: end the other program, which may be another demo, or give --port another number than %d",
		err, o.Port)
}

func (s *system) app() string { return filepath.Join(s.folder, "app") }

// environ returns the environment of worker and commands.
func (s *system) environ() []string {
	return append(slices.Clip(s.base),
		storage.ConnectionName+"="+s.emulator.ConnectionString,
		appSetting+"=demo",
		guard.AllowSetting+"="+s.allowed("127.0.0.1"),
		"XDG_STATE_HOME="+filepath.Join(s.folder, "state"))
}

// allowed returns what may be called: more, what the user allows, and public addresses.
func (s *system) allowed(more ...string) string {
	if s.Allow != "" {
		more = append(more, s.Allow)
	}
	return strings.Join(append(more, "*"), ",")
}

// start starts the worker, which logs to log.
func (s *system) start(ctx context.Context, log io.Writer) error {
	c, err := work.ReadConfig(s.app(), s.environ(), nil)
	err = errors.Join(err, c.App.SettingsErr)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrApp, err)
	}
	for _, f := range c.Functions {
		err := s.store.Create(ctx, f.Queue)
		if err != nil {
			return err
		}
	}
	// The setting knows no ports: of this machine, the worker may call the target alone.
	allow, err := guard.ParseAllow(s.allowed())
	if err != nil {
		return err
	}
	c.App.Settings.Guard.Allow, c.App.Settings.Guard.Local = allow, s.target.AddrPort()
	c.Store, c.Version, c.Grace = s.store, s.Version, grace
	c.PollEvery(polling)
	var working context.Context
	working, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		s.err = work.Run(working, c, log)
	}()
	return nil
}

// close stops all parts, the worker first.
func (s *system) close() error {
	s.stop()
	<-s.ended
	if s.store != nil {
		s.store.Close()
	}
	if s.target != nil {
		s.target.Close()
	}
	if s.emulator != nil {
		s.emulator.Close()
	}
	return errors.Join(s.err, os.RemoveAll(s.folder))
}

// check runs the app with the messages of a check. After a failure it keeps the log.
func (s *system) check(ctx context.Context) error {
	check := Check{
		Store: s.store, Target: s.target, App: s.app(), Executable: s.Executable, Name: s.Name, Environ: s.environ(),
		Deadline: "3s", Stdout: s.Stdout, Stderr: s.Stderr,
	}
	err := check.Prepare(ctx)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.folder, "worker.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	err = s.start(ctx, log)
	if err != nil {
		return err
	}
	check.Ended = s.ended
	err = check.Run(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.stop()
	<-s.ended
	kept := filepath.Join(os.TempDir(), fmt.Sprintf("async-caller-demo-%d.log", os.Getpid()))
	return errors.Join(err, log.Close(), os.Rename(log.Name(), kept), errors.New("the log of the worker is in "+kept))
}

// stay runs the app until ctx ends, and says how to use it.
func (s *system) stay(ctx context.Context) error {
	err := s.start(ctx, logview.NewWriter(s.Stderr))
	if err != nil {
		return err
	}
	fmt.Fprint(s.Stdout, s.invitation(runtime.GOOS))
	select {
	case <-ctx.Done():
		fmt.Fprintln(s.Stderr, "Stopping: the queues and tables end with the demo.")
		return nil
	case <-s.ended:
		return ErrEnded
	}
}

// invitation says how to use what runs.
func (s *system) invitation(platform string) string {
	form := "  export %s='%s'\n"
	if platform == "windows" {
		form = "  $env:%s='%s'\n"
	}
	var exports strings.Builder
	for _, variable := range s.environ() {
		name, value, _ := strings.Cut(variable, "=")
		if slices.Contains([]string{storage.ConnectionName, guard.AllowSetting}, name) {
			fmt.Fprintf(&exports, form, name, value)
		}
	}
	return fmt.Sprintf(`
Everything keeps running until Ctrl-C. In another terminal, paste:

%[1]s
and try:

  %[2]s send --url %[3]s --body hello
  %[2]s send --url %[4]s --retry 2s,10m --request-id order-1
  %[2]s show order-1
  %[2]s calls retry order-1 --yes    # its third attempt, which is due in ten minutes
  %[2]s status

Each delivery of a message prints one line here. The target is http://%[5]s. The path of the URL is its
answer: a status, or a list like 503,503,200 with one for each call.
`, &exports, s.Name, s.target.URL("200"), s.target.URL("503,503,200"), s.target.Addr)
}

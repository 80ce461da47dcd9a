package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

type testConfig struct {
	Name  string `flag:"name" required:"true" help:"a name"`
	Count int    `flag:"count" default:"1" min:"1" max:"9" help:"a number"`
}

type countConfig struct {
	Count int `flag:"count" default:"1" min:"1" max:"9" help:"a number"`
}

type fakeService struct{ ran *bool }

func (s fakeService) Run(context.Context) error {
	*s.ran = true
	return nil
}

func TestCommandLine(t *testing.T) {
	broken := errors.New("TLS_CERT_FILE: no such file")
	for _, tt := range []struct {
		name  string
		args  []string
		env   map[string]string
		build error
		code  int
		ran   bool
		says  []string
	}{
		{"serves what can work", []string{"serve", "--name=a"}, nil, nil, 0, true, nil},
		{"serves what the environment says", []string{"serve"}, map[string]string{"NAME": "a"}, nil, 0, true, nil},
		{"only checks when asked to", []string{"check-config", "--name=a"}, nil, nil, 0, false, []string{"the configuration can work"}},
		{"names every problem at once", []string{"serve", "--count=11"}, nil, nil, 2, false, []string{"NAME is not set", `COUNT="11"`}},
		{"checks as it serves", []string{"check-config", "--count=11"}, nil, nil, 2, false, []string{"NAME is not set", `COUNT="11"`}},
		{"refuses the other half's credential", []string{"serve", "--name=a"}, map[string]string{"OTHER_TOKEN": "hush"}, nil, 2, false, []string{"OTHER_TOKEN", "must never meet"}},
		{"refuses it in a check too, among other problems", []string{"check-config"}, map[string]string{"OTHER_TOKEN": "hush"}, nil, 2, false, []string{"OTHER_TOKEN", "NAME is not set"}},
		{"takes files that are wrong for configuration", []string{"check-config", "--name=a"}, nil, broken, 2, false, []string{broken.Error()}},
		{"does not know other flags", []string{"serve", "--size=1"}, nil, nil, 2, false, []string{"--size"}},
		{"takes no arguments", []string{"serve", "--name=a", "now"}, nil, nil, 2, false, []string{`unexpected argument "now": want half serve`}},
		{"does not know other commands", []string{"srve"}, nil, nil, 2, false, []string{`unknown command "srve"`, "did you mean serve?"}},
		{"says where the commands are", []string{"frobnicate", "--name=a"}, nil, nil, 2, false, []string{"--name"}},
		{"names none that is like nothing", []string{"frobnicate"}, nil, nil, 2, false, []string{`unknown command "frobnicate": half --help lists all`}},
		{"shows what there is without a command", nil, nil, nil, 0, false, []string{"Available Commands:", "check-config"}},
		{"takes no arguments to its version", []string{"version", "now"}, nil, nil, 2, false, []string{`unexpected argument "now"`}},
		{"runs what the half adds", []string{"greet", "--name=a", "you"}, nil, nil, 0, false, []string{"a greets you"}},
		{"configures it as it serves", []string{"greet", "--count=11", "you"}, map[string]string{"OTHER_TOKEN": "hush"}, nil, 2, false, []string{"NAME is not set", `COUNT="11"`, "OTHER_TOKEN"}},
		{"asks for its arguments", []string{"greet", "--name=a"}, nil, nil, 2, false, []string{"WHOM is missing: want half greet WHOM"}},
		{"takes no more of them", []string{"greet", "--name=a", "you", "and", "you"}, nil, nil, 2, false, []string{`unexpected argument "and": want half greet WHOM`}},
		{"fails as it fails", []string{"greet", "--name=a", "nobody"}, nil, nil, 1, false, []string{"nobody is there"}},
		{"runs a tool with settings of its own", []string{"measure", "--count=3"}, map[string]string{"OTHER_TOKEN": "hush"}, nil, 0, false, []string{"measured 3 times"}},
		{"judges them as it judges others", []string{"measure", "--count=11"}, nil, nil, 2, false, []string{`COUNT="11"`}},
		{"does not know serve's settings there", []string{"measure", "--name=a"}, nil, nil, 2, false, []string{"--name"}},
		{"knows arguments that may be left out", []string{"look"}, nil, nil, 0, false, []string{"looked at []"}},
		{"and takes them", []string{"look", "this"}, nil, nil, 0, false, []string{"looked at [this]"}},
		{"but no more", []string{"look", "this", "that"}, nil, nil, 2, false, []string{"[WHAT]", "that"}},
		{"prints its version", []string{"version"}, nil, nil, 0, false, []string{"half v1.2.3\ncommit 0123abc\n" + runtime.Version()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ran := false
			half := Component[testConfig]{
				Name: "half", Version: "v1.2.3", Commit: "0123abc", ForbiddenEnv: []string{"OTHER_TOKEN"},
				Build: func(*testConfig, *slog.Logger) (Service, error) { return fakeService{&ran}, tt.build },
				Standalone: []StandaloneCommand{NewStandalone("measure", "Measure", func(_ context.Context, call Invocation[countConfig]) error {
					_, err := fmt.Fprintf(call.Out, "measured %d times\n", call.Config.Count)
					return err
				}), NewStandalone("look [WHAT]", "Look", func(_ context.Context, call Invocation[countConfig]) error {
					_, err := fmt.Fprintf(call.Out, "looked at %v\n", call.Args)
					return err
				})},
				Subcommands: []Subcommand[testConfig]{{Use: "greet WHOM", Short: "Greet", Run: func(_ context.Context, call Invocation[testConfig]) error {
					if call.Args[0] == "nobody" {
						return errors.New("nobody is there")
					}
					fmt.Fprintf(call.Out, "%s greets %s", call.Config.Name, call.Args[0])
					return nil
				}}},
			}
			var out bytes.Buffer
			cmd := half.Command(func(name string) string { return tt.env[name] })
			cmd.SetArgs(tt.args)
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			err := cmd.ExecuteContext(t.Context())
			text := out.String()
			if err != nil {
				text += err.Error()
			}
			if code := settings.ExitCode(err); code != tt.code || ran != tt.ran {
				t.Errorf("exit code %d, ran: %t; want %d, %t\n%s", code, ran, tt.code, tt.ran, text)
			}
			for _, want := range tt.says {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
			if strings.Contains(text, "hush") {
				t.Errorf("a secret is printed:\n%s", text)
			}
		})
	}
}

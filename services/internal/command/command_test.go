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
	"testing/synctest"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

type testConfig struct {
	Name  string      `flag:"name"     required:"true" help:"a name"        group:"Names"`
	Nick  string      `flag:"nickname"                 help:"a secret name" group:"Names" secret:"true"`
	Count int         `flag:"count"                    help:"a number"                                  default:"1" min:"1" max:"9"`
	Log   LogSettings `                                                     group:"Log"`
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
		want  []string // in the output or error
	}{
		{"serve runs a valid configuration", []string{"serve", "--name=a"}, nil, nil, 0, true, nil},
		{"serve reads the environment", []string{"serve"}, map[string]string{"NAME": "a"}, nil, 0, true, nil},
		{"serve logs JSON", []string{"serve", "--name=a"}, nil, nil, 0, true, []string{`"level":"INFO","msg":"starting"`}},
		{"serve logs as configured", []string{"serve", "--name=a", "--log-level=debug"}, map[string]string{"LOG_FORMAT": "text"}, nil, 0, true, []string{"level=DEBUG msg=built", "level=INFO msg=starting"}},
		{"serve reports an invalid log level", []string{"serve", "--name=a", "--log-level=verbose"}, nil, nil, 2, false, []string{`LOG_LEVEL="verbose"`, "debug, info, warn, error"}},
		{"check-config does not run", []string{"check-config", "--name=a"}, nil, nil, 0, false, []string{"configuration is valid"}},
		{"serve reports all problems", []string{"serve", "--count=11"}, nil, nil, 2, false, []string{"NAME is not set", `COUNT="11"`}},
		{"check-config reports all problems", []string{"check-config", "--count=11"}, nil, nil, 2, false, []string{"NAME is not set", `COUNT="11"`}},
		{"serve rejects the other component's credential", []string{"serve", "--name=a"}, map[string]string{"OTHER_TOKEN": "hush"}, nil, 2, false, []string{"OTHER_TOKEN", "credentials of the other component must not be set here"}},
		{"check-config rejects it, among other problems", []string{"check-config"}, map[string]string{"OTHER_TOKEN": "hush"}, nil, 2, false, []string{"OTHER_TOKEN", "NAME is not set"}},
		{"invalid files are configuration errors", []string{"check-config", "--name=a"}, nil, broken, 2, false, []string{broken.Error()}},
		{"check-config reports settings and files together", []string{"check-config", "--count=11"}, map[string]string{"FILES": "invalid"}, nil, 2, false, []string{"configuration:\n- COUNT=\"11\"", "\n- NAME is not set", "\n- FILE: strict, with the cluster"}},
		{"check-config without a cluster", []string{"check-config", "--name=a", "--offline"}, map[string]string{"FILES": "invalid"}, nil, 2, false, []string{"- FILE: strict, offline"}},
		{"check-config without a cluster builds nothing", []string{"check-config", "--name=a", "--offline"}, nil, broken, 0, false, []string{"configuration is valid"}},
		{"serve reports settings and files together", []string{"serve", "--count=11"}, map[string]string{"FILES": "invalid"}, nil, 2, false, []string{"- COUNT=", "- NAME is not set", "- FILE: offline"}},
		{"check-config warns of a misspelled variable", []string{"check-config", "--name=a"}, nil, nil, 0, false, []string{"warning: COUMT is not a setting; did you mean COUNT?\nconfiguration is valid"}},
		{"serve warns of it", []string{"serve", "--name=a"}, nil, nil, 0, true, []string{`"level":"WARN"`, "COUMT is not a setting"}},
		{"unknown flag", []string{"serve", "--size=1"}, nil, nil, 2, false, []string{"--size"}},
		{"unexpected argument", []string{"serve", "--name=a", "now"}, nil, nil, 2, false, []string{`unexpected argument "now", want component serve`}},
		{"misspelled command", []string{"srve"}, nil, nil, 2, false, []string{`unknown command "srve"`, "did you mean serve?"}},
		{"unknown command with a flag", []string{"frobnicate", "--name=a"}, nil, nil, 2, false, []string{"--name"}},
		{"unknown command", []string{"frobnicate"}, nil, nil, 2, false, []string{`unknown command "frobnicate"; component --help lists all commands`}},
		{"help without a command", nil, nil, nil, 0, false, []string{"Available Commands:", "check-config"}},
		{"unexpected argument of version", []string{"version", "now"}, nil, nil, 2, false, []string{`unexpected argument "now"`}},
		{"subcommand", []string{"greet", "--name=a", "you"}, nil, nil, 0, false, []string{"a greets you"}},
		{"subcommand reports all problems", []string{"greet", "--count=11", "you"}, map[string]string{"OTHER_TOKEN": "hush"}, nil, 2, false, []string{"NAME is not set", `COUNT="11"`, "OTHER_TOKEN"}},
		{"missing argument", []string{"greet", "--name=a"}, nil, nil, 2, false, []string{"missing argument NAME, want component greet NAME"}},
		{"too many arguments", []string{"greet", "--name=a", "you", "and", "you"}, nil, nil, 2, false, []string{`unexpected argument "and", want component greet NAME`}},
		{"failing subcommand", []string{"greet", "--name=a", "missing"}, nil, nil, 1, false, []string{"not found"}},
		{"standalone command", []string{"measure", "--count=3"}, map[string]string{"OTHER_TOKEN": "hush"}, nil, 0, false, []string{"measured 3 times"}},
		{"standalone command with invalid settings", []string{"measure", "--count=11"}, nil, nil, 2, false, []string{`COUNT="11"`}},
		{"standalone command has no settings of serve", []string{"measure", "--name=a"}, nil, nil, 2, false, []string{"--name"}},
		{"optional argument omitted", []string{"show"}, nil, nil, 0, false, []string{"showed []"}},
		{"optional argument", []string{"show", "this"}, nil, nil, 0, false, []string{"showed [this]"}},
		{"argument after the optional one", []string{"show", "this", "that"}, nil, nil, 2, false, []string{"[WHAT]", "that"}},
		{"version as a flag", []string{"--version"}, nil, nil, 0, false, []string{"component v1.2.3\ncommit 0123abc\n" + runtime.Version()}},
		{"help with examples, flags and exit codes", []string{"show", "--help"}, nil, nil, 0, false, []string{
			"Usage:\n  component show [WHAT] [flags]\n", "\nExamples:\n  component show this\n  component show that\n",
			"\nFlags:\n      --count int                a number (default 1) [$COUNT]\n  -h, --help                     help for show\n  -o, --output table|json|yaml   form of the result (default table)\n",
			"\nExit codes:\n  0  success\n  1  nothing to show\n  2  invalid flags, arguments or settings\n",
		}},
		{"help with settings by group", []string{"greet", "--help"}, nil, nil, 0, false, []string{
			"\nFlags:\n      --count int                a number (default 1) [$COUNT]\n  -h, --help                     help for greet\n  -o, --output table|json|yaml   form of the result (default table)\n",
			"\nSettings, Names:\n      --name string   a name [$NAME]\n      no flag, only [$NICKNAME]: a secret name\n\n",
			"\nExit codes:\n  0  success\n  1  the command failed\n",
		}},
		{"completion", []string{"completion", "bash"}, nil, nil, 0, false, []string{"# bash completion V2 for component"}},
		{"table by name", []string{"show", "this", "--output=table"}, nil, nil, 0, false, []string{"showed [this]"}},
		{"JSON", []string{"show", "this", "-o", "json"}, nil, nil, 0, false, []string{"{\n  \"showed\": [\n    \"this\"\n  ]\n}\n"}},
		{"YAML", []string{"show", "this", "-oyaml"}, nil, nil, 0, false, []string{"showed:\n- this\n"}},
		{"unknown format", []string{"show", "-o", "xml"}, nil, nil, 2, false, []string{`"xml"`, "-o, --output", "want one of table, json, yaml"}},
		{"format from the environment", []string{"show", "this"}, map[string]string{"OUTPUT": "json"}, nil, 0, false, []string{"showed [this]"}},
		{"version", []string{"version"}, nil, nil, 0, false, []string{"component v1.2.3\ncommit 0123abc\n" + runtime.Version()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ran := false
			component := Component[testConfig]{
				Name:         "component",
				Version:      "v1.2.3",
				Commit:       "0123abc",
				ForbiddenEnv: []string{"OTHER_TOKEN"},
				LogSettings:  func(cfg *testConfig) LogSettings { return cfg.Log },
				environ:      []string{"COUMT=2"},
				CheckFiles: func(_ *testConfig, checks settings.FileChecks) error {
					strict := map[bool]string{true: "strict, "}[checks.Strict]
					cluster := map[bool]string{true: "with the cluster", false: "offline"}[checks.Cluster]
					if tt.env["FILES"] == "" {
						return nil
					}
					return fmt.Errorf("FILE: %s%s", strict, cluster)
				},
				Build: func(_ *testConfig, log *slog.Logger) (Service, error) {
					log.Debug("built")
					return fakeService{&ran}, tt.build
				},
				Standalone: []StandaloneCommand{
					NewStandalone(
						Subcommand[countConfig]{
							Use:   "measure",
							Short: "Measure",
							Run: func(_ context.Context, call Invocation[countConfig]) error {
								_, err := fmt.Fprintf(call.Out, "measured %d times\n", call.Config.Count)
								return err
							},
						},
					),
					NewStandalone(
						Subcommand[countConfig]{
							Use:     "show [WHAT]",
							Short:   "Show",
							Example: "component show this\ncomponent show that",
							Failure: "nothing to show",
							Run: func(_ context.Context, call Invocation[countConfig]) error {
								if !call.Format.IsTable() {
									return call.Format.Write(call.Out, map[string]any{"showed": call.Args})
								}
								_, err := fmt.Fprintf(call.Out, "showed %v\n", call.Args)
								return err
							},
						},
					),
				},
				Subcommands: []Subcommand[testConfig]{
					{Use: "greet NAME", Short: "Greet", Run: func(_ context.Context, call Invocation[testConfig]) error {
						if call.Args[0] == "missing" {
							return errors.New("not found")
						}
						fmt.Fprintf(call.Out, "%s greets %s", call.Config.Name, call.Args[0])
						return nil
					}},
				},
			}
			var out bytes.Buffer
			cmd := component.Command(func(name string) string { return tt.env[name] })
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
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("output does not contain %q:\n%s", want, text)
				}
			}
			if strings.Contains(text, "hush") {
				t.Errorf("output contains a secret:\n%s", text)
			}
		})
	}
}

type serviceFunc func(context.Context) error

func (f serviceFunc) Run(ctx context.Context) error { return f(ctx) }

func TestServeLogsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		cmd := Component[testConfig]{
			Name:        "component",
			LogSettings: func(cfg *testConfig) LogSettings { return cfg.Log },
			CheckFiles:  func(*testConfig, settings.FileChecks) error { return nil },
			Build: func(*testConfig, *slog.Logger) (Service, error) {
				return serviceFunc(func(context.Context) error { cancel(); synctest.Wait(); return nil }), nil
			},
		}.Command(func(string) string { return "" })
		cmd.SetArgs([]string{"serve", "--name=a"})
		cmd.SetErr(&out)
		if err := cmd.ExecuteContext(ctx); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(out.String(), "\n")
		if len(lines) != 4 || !strings.Contains(lines[1], `"msg":"stopping"`) || !strings.Contains(lines[2], `"msg":"stopped"`) {
			t.Errorf("got %s", out.String())
		}
	})
}

package settings

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
)

type links struct {
	Listen string `flag:"listen-address" default:":9443" help:"where to listen" placeholder:"[host]:port"`
	Cert   string `flag:"tls-cert-file"                  help:"certificate"     placeholder:"a file"      required:"true"`
}

type config struct {
	Cordoned  string        `flag:"cordoned"               default:"keep" enum:"keep,drain" help:"what a cordon does"`
	Subnets   []Subnet      `flag:"secured-subnet-cidr"                                     help:"which addresses count" env:"SECURED_SUBNET_PREFIX"`
	Args      []string      `flag:"inventory-command-args"                                  help:"arguments"`
	Interval  time.Duration `flag:"poll-interval"          default:"60s"                    help:"how often"                                         min:"1s" max:"1h"`
	Threshold int           `flag:"empty-threshold"        default:"3"                      help:"how many"                                          min:"1"  max:"9"`
	DryRun    bool          `flag:"dry-run"                                                 help:"write nothing"`
	Token     string        `flag:"ionos-token"                                             help:"the token"                                                           secret:"true"`
	Code      uint16        `flag:"code"                                                    help:"a secret number"                                                     secret:"true"`
	Link      links         `                                                                                                                                                        group:"Link"`

	validate func(*config) []*Problem
}

func (c *config) Validate() []*Problem {
	if c.validate == nil {
		return nil
	}
	return c.validate(c)
}

func load(t *testing.T, c *config, env map[string]string, args ...string) error {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	Register(flags, c)
	if err := flags.Parse(args); err != nil {
		return NewConfigError(err)
	}
	return NewConfigError(Load(flags, func(name string) string { return env[name] }, c))
}

func TestPrecedence(t *testing.T) {
	env := map[string]string{
		"TLS_CERT_FILE": "env.crt", "CORDONED": "drain", "POLL_INTERVAL": "5s", "IONOS_TOKEN": "hush", "DRY_RUN": "1",
		"SECURED_SUBNET_PREFIX": "10.0.0.0/24, fd00::/64", "LISTEN_ADDRESS": "",
	}
	var got config
	if err := load(
		t,
		&got,
		env,
		"--poll-interval=7s",
		"--tls-cert-file",
		"flag.crt",
		"--inventory-command-args=a,b",
		"--inventory-command-args=c",
	); err != nil {
		t.Fatal(err)
	}
	want := config{
		Cordoned: "drain", Subnets: []Subnet{{netip.MustParsePrefix("10.0.0.0/24")}, {netip.MustParsePrefix("fd00::/64")}},
		Args: []string{"a", "b", "c"}, Interval: 7 * time.Second, Threshold: 3, DryRun: true, Token: "hush",
		Link: links{Listen: ":9443", Cert: "flag.crt"},
	}
	if diff := cmp.Diff(
		want,
		got,
		cmpopts.IgnoreUnexported(config{}),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	); diff != "" {
		t.Error(diff)
	}
}

func TestBoolFlagNeedsNoValue(t *testing.T) {
	var c config
	if err := load(t, &c, nil, "--dry-run", "--tls-cert-file=x"); err != nil || !c.DryRun {
		t.Errorf("got %v, %v", c.DryRun, err)
	}
	if err := load(t, &c, map[string]string{"DRY_RUN": "true"}, "--dry-run=false", "--tls-cert-file=x"); err != nil || c.DryRun {
		t.Errorf("got %v, %v", c.DryRun, err)
	}
}

func TestReportsAllProblems(t *testing.T) {
	c := config{validate: func(c *config) (problems []*Problem) {
		if c.Interval != time.Minute {
			problems = append(problems, &Problem{Setting: "INTERVAL", Expected: "the default instead of an invalid value"})
		}
		return append(problems,
			&Problem{Setting: "POLL_INTERVAL", Expected: "something else: a second problem"},
			&Problem{Setting: "IONOS_DATACENTER_ID", Expected: "a UUID"})
	}}
	err := load(t, &c, map[string]string{
		"CORDONED": "evict", "SECURED_SUBNET_CIDR": "10.0.0.0/24,10.0.0.0/33", "POLL_INTERVAL": "2h", "CODE": "12345678",
	}, "--empty-threshold=0", "--dry-run=perhaps")
	want := strings.Join([]string{
		"invalid configuration:",
		`- CORDONED="evict": want one of keep, drain`,
		`- SECURED_SUBNET_CIDR="10.0.0.0/24,10.0.0.0/33": want a CIDR such as 10.0.1.0/24, got "10.0.0.0/33"`,
		`- POLL_INTERVAL="2h": want a duration such as 5s, 1s to 1h`,
		`- EMPTY_THRESHOLD="0": want a whole number, 1 to 9`,
		`- DRY_RUN="perhaps": want true or false`,
		`- CODE (its value is secret): want a whole number`,
		`- TLS_CERT_FILE is not set: want a file`,
		`- IONOS_DATACENTER_ID is not set: want a UUID`,
	}, "\n")
	if err == nil {
		t.Fatal("accepted")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
	if ExitCode(err) != 2 {
		t.Errorf("exit code %d, want 2", ExitCode(err))
	}
}

func TestSecretIsNeitherFlagNorPrinted(t *testing.T) {
	var c config
	if err := load(t, &c, nil, "--ionos-token=hush"); err == nil || ExitCode(err) != 2 {
		t.Errorf("accepted a secret on the command line: %v", err)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Register(flags, &c)
	err := Load(flags, func(name string) string {
		return map[string]string{"CODE": "s3cr3t", "IONOS_TOKEN": "s3cr3t"}[name]
	}, &c)
	if err == nil || strings.Contains(err.Error()+flags.FlagUsages(), "s3cr3t") {
		t.Errorf("printed a secret, or accepted it as a number: %v", err)
	}
}

func TestRejectsConflictingDeprecatedNames(t *testing.T) {
	type config struct {
		Subnets  []Subnet      `flag:"secured-subnet-cidr" env:"SECURED_SUBNET_PREFIX,SUBNETS"`
		Interval time.Duration `flag:"poll-interval"       env:"INTERVAL"`
		Token    string        `flag:"ionos-token"         env:"TOKEN"                         secret:"true"`
	}
	for _, tt := range []struct {
		name string
		env  map[string]string
		want string // part of the error; empty: none
	}{
		{"one text", map[string]string{"SECURED_SUBNET_CIDR": "10.0.0.0/24", "SECURED_SUBNET_PREFIX": "10.0.0.0/24"}, ""},
		{"a CIDR and its first octets", map[string]string{"SECURED_SUBNET_CIDR": "10.0.0.0/24", "SECURED_SUBNET_PREFIX": "10.0.0."}, ""},
		{"a list in another order", map[string]string{"SECURED_SUBNET_CIDR": "10.0.0.0/24, 10.0.1.0/24", "SECURED_SUBNET_PREFIX": "10.0.1.,10.0.0."}, ""},
		{"two deprecated names", map[string]string{"SECURED_SUBNET_PREFIX": "10.0.0.", "SUBNETS": "10.0.0"}, ""},
		{"a minute and sixty seconds", map[string]string{"POLL_INTERVAL": "1m", "INTERVAL": "60s"}, ""},
		{"a secret", map[string]string{"IONOS_TOKEN": "a", "TOKEN": "a"}, ""},
		{"another subnet", map[string]string{"SECURED_SUBNET_CIDR": "10.0.0.0/24", "SECURED_SUBNET_PREFIX": "10.0.1."}, "SECURED_SUBNET_PREFIX=\"10.0.1.\": want the value of SECURED_SUBNET_CIDR"},
		{"a wider subnet", map[string]string{"SECURED_SUBNET_CIDR": "10.0.0.0/24", "SECURED_SUBNET_PREFIX": "10.0."}, "SECURED_SUBNET_PREFIX"},
		{"one subnet of two", map[string]string{"SECURED_SUBNET_CIDR": "10.0.0.0/24,10.0.1.0/24", "SECURED_SUBNET_PREFIX": "10.0.0."}, "SECURED_SUBNET_PREFIX"},
		{"two subnets for one", map[string]string{"SECURED_SUBNET_CIDR": "10.0.0.0/24", "SECURED_SUBNET_PREFIX": "10.0.0.,10.0.1."}, "SECURED_SUBNET_PREFIX"},
		{"an invalid subnet", map[string]string{"SECURED_SUBNET_CIDR": "10.0.0.0/24", "SECURED_SUBNET_PREFIX": "internal"}, "SECURED_SUBNET_PREFIX"},
		{"another duration", map[string]string{"POLL_INTERVAL": "1m", "INTERVAL": "1h"}, "INTERVAL"},
		{"another secret", map[string]string{"IONOS_TOKEN": "hush", "TOKEN": "hush2"}, "TOKEN (its value is secret)"},
	} {
		err := Load(nil, func(name string) string { return tt.env[name] }, &config{})
		if tt.want == "" && err != nil ||
			tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestExitCode(t *testing.T) {
	for want, err := range map[int]error{0: nil, 1: errors.New("broken"), 2: NewConfigError(errors.New("unknown flag"))} {
		if got := ExitCode(err); got != want {
			t.Errorf("%v: got %d, want %d", err, got, want)
		}
	}
}

func TestRendersHelp(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Register(flags, &config{})
	for _, want := range []string{"--listen-address [host]:port", "where to listen (default :9443) [$LISTEN_ADDRESS]", "--cordoned keep|drain"} {
		if !strings.Contains(flags.FlagUsages(), want) {
			t.Errorf("help lacks %q:\n%s", want, flags.FlagUsages())
		}
	}
}

func TestPanicsOnInvalidDefault(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("accepted an invalid default")
		}
	}()
	List(&struct {
		D time.Duration `flag:"d" default:"soon"`
	}{})
}

func TestConfigErrorHasOneLinePerProblem(t *testing.T) {
	one, another, more := errors.New("one"), errors.New("another"), errors.New("more")
	err := NewConfigError(errors.Join(one, errors.Join(another, fmt.Errorf("both: %w, %w", one, more))))
	if want := ErrConfiguration.Error() + ":\n- one\n- another\n- both: one, more"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if !errors.Is(err, ErrConfiguration) || !errors.Is(err, more) {
		t.Error("errors.Is does not match the wrapped errors")
	}
}

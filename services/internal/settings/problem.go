package settings

import (
	"errors"
	"fmt"
	"strings"
)

// ErrConfiguration matches every error about an invalid configuration.
var ErrConfiguration = errors.New("invalid configuration")

// ExitCode returns the exit code for an error: 0 for nil, 2 for an invalid configuration, and 1 for
// any other error.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrConfiguration):
		return 2
	default:
		return 1
	}
}

// FlagError marks an error of pflag, such as an unknown flag, as an invalid configuration. It is meant
// for cobra's SetFlagErrorFunc.
func FlagError(err error) error { return fmt.Errorf("%w:\n- %w", ErrConfiguration, err) }

// Problem is an invalid value of one setting. Validate methods return joined Problems, so that they
// are reported like those that Load finds.
type Problem struct {
	Setting  string // environment name, such as LISTEN_ADDRESS
	Value    string // as set; empty: not set, or secret
	Secret   bool   // set, but must not be printed
	Expected string // expected value, such as "a duration such as 5s"
}

func (p *Problem) Error() string {
	switch {
	case p.Secret:
		return fmt.Sprintf("%s (its value is secret): want %s", p.Setting, p.Expected)
	case p.Value == "":
		return fmt.Sprintf("%s is not set: want %s", p.Setting, p.Expected)
	default:
		return fmt.Sprintf("%s=%q: want %s", p.Setting, p.Value, p.Expected)
	}
}

// FileChecks are the checks of files besides those that serve makes.
type FileChecks struct {
	Strict  bool // what serve works with too, but which is probably a mistake, and what serve reads again
	Cluster bool // how to connect to the cluster
}

// CheckFile names the setting of a file in each problem of the file. An unset file is no problem.
func CheckFile(setting, path string, check func(path string) error) error {
	if path == "" {
		return nil
	}
	var problems []error
	for _, err := range splitJoined(check(path)) {
		problems = append(problems, fmt.Errorf("%s=%q: %w", setting, path, err))
	}
	return errors.Join(problems...)
}

// newProblem returns a problem without the value of a secret.
func (f *Field) newProblem(name, value, expected string) *Problem {
	if f.Secret {
		value = ""
	}
	return &Problem{Setting: name, Value: value, Secret: f.Secret, Expected: expected}
}

// configError lists problems, one per line.
type configError struct{ problems []error }

func (r *configError) Error() string {
	var b strings.Builder
	b.WriteString(ErrConfiguration.Error() + ":")
	for _, p := range r.problems {
		b.WriteString("\n- " + p.Error())
	}
	return b.String()
}

func (r *configError) Unwrap() []error { return append([]error{ErrConfiguration}, r.problems...) }

// NewConfigError turns an error into one about an invalid configuration, with a line for each error
// joined in it.
func NewConfigError(err error) error {
	if err == nil {
		return nil
	}
	return &configError{splitJoined(err)}
}

// splitJoined returns the errors that were joined, also in several levels. An error that wraps
// several errors in a text of its own is not split.
func splitJoined(err error) []error {
	if err == nil {
		return nil
	}
	if listed, ok := err.(*configError); ok { //nolint:errorlint // not one that is wrapped with a text
		return listed.problems
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, splitJoined(e)...)
	}
	return all
}

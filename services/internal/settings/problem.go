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

// configError is about an invalid configuration. It has a line for each error that was joined.
type configError struct{ error }

func (c configError) Error() string {
	return ErrConfiguration.Error() + ":\n- " + strings.ReplaceAll(c.error.Error(), "\n", "\n- ")
}

func (c configError) Unwrap() []error { return []error{ErrConfiguration, c.error} }

// NewConfigError marks an error as one about an invalid configuration.
func NewConfigError(err error) error {
	if err == nil || errors.Is(err, ErrConfiguration) {
		return err
	}
	return configError{err}
}

// Problem is an invalid value of one setting.
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
	err := check(path)
	if err == nil {
		return nil
	}
	name := fmt.Sprintf("%s=%q: ", setting, path)
	return errors.New(name + strings.ReplaceAll(err.Error(), "\n", "\n"+name))
}

// newProblem returns a problem without the value of a secret.
func (f *Field) newProblem(name, value, expected string) *Problem {
	if f.Secret {
		value = ""
	}
	return &Problem{Setting: name, Value: value, Secret: f.Secret, Expected: expected}
}

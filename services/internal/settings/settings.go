// Package settings fills a component's configuration struct from flags and the environment. The
// struct is the single source of flags, environment names, defaults, help and documentation. The
// package guarantees that all problems are reported together. It does not accept a secret as a
// flag, and does not print one.
//
// Tags describe a field:
//
//	flag:"listen-address"   name of the flag; in upper case with underscores, LISTEN_ADDRESS, the environment name
//	default:":9443"         value if neither flag nor environment sets one
//	help:"where to listen"  one sentence for --help and the documentation
//	placeholder:"host:port" form of a value; by default the field's type
//	secret:"true"           environment only: no flag, and the value is never printed
//	flagonly:"true"         not in the environment, for a flag whose name says little there
//	env:"OLD_NAME"          deprecated environment names, separated by commas; if several are set,
//	                        their values must be equivalent
//	enum:"keep,drain"       allowed values
//	min:"1s" max:"1m"       inclusive bounds of an int or a duration
//	required:"true"         must be set
//	unset:"text"            what it should be, for the problem that it is not set
//	group:"Link"            heading in the documentation; on a nested struct, of all its fields
//
// A field is a string, bool, int, uint, time.Duration, an encoding.TextUnmarshaler such as
// netip.Prefix, or a slice of these (a comma-separated list, or a repeated flag). Nested structs
// without a flag tag are flattened, so that components can share parts of a configuration.
package settings

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
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

// Register adds the flags of cfg, a pointer to a configuration struct, to flags. It panics if the
// tags of the struct are invalid, which is a bug in the program.
func Register(flags *pflag.FlagSet, cfg any) {
	for _, f := range List(cfg) {
		if f.Secret {
			continue
		}
		help := f.Help
		if f.Default != "" {
			help += fmt.Sprintf(" (default %s)", f.Default)
		}
		if !f.FlagOnly {
			help += " [$" + f.Env + "]"
		}
		flag := flags.VarPF(&rawFlag{list: f.IsList(), kind: f.valueName()}, f.Flag, "", help)
		if f.value.Kind() == reflect.Bool {
			flag.NoOptDefVal = "true"
		}
	}
}

// Load fills cfg from flags (parsed, after Register; nil: none), then the environment, then the
// defaults, and calls its Validate() error method, if it has one. An empty environment variable
// counts as unset. The error lists all problems.
func Load(flags *pflag.FlagSet, getenv func(string) string, cfg any) error {
	var problems []error
	seen := map[string]bool{}
	add := func(p *Problem) {
		seen[p.Setting] = true
		problems = append(problems, p)
	}
	for _, f := range List(cfg) {
		text, p := f.lookupText(flags, getenv)
		switch {
		case p != nil:
			add(p)
			continue
		case text == "" && f.Required:
			add(&Problem{Setting: f.Env, Expected: cmp.Or(f.Unset, f.Expected())})
			continue
		}
		if err := f.setText(text); err != nil {
			expected := err.Error()
			if f.Secret {
				expected = f.Expected() // err may quote the value
			}
			add(f.newProblem(f.Env, text, expected))
			if err := f.setText(f.Default); err != nil { // gives Validate a valid value
				f.value.SetZero()
			}
		}
	}
	if v, ok := cfg.(interface{ Validate() error }); ok {
		for _, err := range splitJoined(v.Validate()) {
			var p *Problem
			if errors.As(err, &p) && seen[p.Setting] {
				continue // report a setting once: the first problem is the cause
			}
			problems = append(problems, err)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &configError{problems}
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
func NewConfigError(err error) error { return &configError{splitJoined(err)} }

// splitJoined returns the errors that were joined, also in several levels. An error that wraps
// several errors in a text of its own is not split.
func splitJoined(err error) []error {
	if err == nil {
		return nil
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

// rawFlag holds a flag as text. Load converts it, because pflag would stop at the first invalid
// value.
type rawFlag struct {
	text, kind string
	list, set  bool
}

func (r *rawFlag) String() string { return r.text }
func (r *rawFlag) Type() string   { return r.kind }
func (r *rawFlag) Set(text string) error {
	if r.list && r.set {
		text = r.text + "," + text
	}
	r.text, r.set = text, true
	return nil
}

// Field is one setting of a configuration struct, as its tags describe it.
type Field struct {
	Flag, Env, Default, Help, Group string
	Deprecated, Enum                []string // other environment names; allowed values
	Min, Max                        string
	Unset                           string // what a required setting that is not set should be; empty: Expected
	Secret, Required, FlagOnly      bool   // FlagOnly: Env is the flag, as a person writes it

	value       reflect.Value
	placeholder string
}

// List returns the settings of cfg, a pointer to a configuration struct, in the order of its fields.
func List(cfg any) []Field {
	v := reflect.ValueOf(cfg)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("settings: %T is not a pointer to a struct", cfg))
	}
	return walkStruct(v.Elem(), "")
}

func walkStruct(v reflect.Value, group string) []Field {
	var all []Field
	for i := range v.NumField() {
		sf, tag := v.Type().Field(i), v.Type().Field(i).Tag
		name, tagged := tag.Lookup("flag")
		if !tagged {
			if sf.IsExported() && sf.Type.Kind() == reflect.Struct {
				all = append(all, walkStruct(v.Field(i), cmp.Or(tag.Get("group"), group))...)
			}
			continue
		}
		f := Field{
			value: v.Field(i), Flag: name, Env: strings.ToUpper(strings.ReplaceAll(name, "-", "_")),
			Default: tag.Get("default"), Help: tag.Get("help"), placeholder: tag.Get("placeholder"),
			Group: cmp.Or(tag.Get("group"), group), Deprecated: splitList(tag.Get("env")), Enum: splitList(tag.Get("enum")),
			Min: tag.Get("min"), Max: tag.Get("max"), Unset: tag.Get("unset"),
			Secret: tag.Get("secret") == "true", Required: tag.Get("required") == "true",
			FlagOnly: tag.Get("flagonly") == "true",
		}
		if f.FlagOnly {
			f.Env = "--" + name
		}
		scratch := f
		scratch.value = reflect.New(sf.Type).Elem()
		if err := scratch.setText(f.Default); err != nil {
			panic(fmt.Sprintf("settings: default of %s: want %v", f.Env, err))
		}
		all = append(all, f)
	}
	return all
}

// lookupText returns the text of the setting from its flag, the environment or the default.
func (f *Field) lookupText(flags *pflag.FlagSet, getenv func(string) string) (string, *Problem) {
	if flags != nil && !f.Secret {
		if flag := flags.Lookup(f.Flag); flag != nil && flag.Changed {
			return flag.Value.String(), nil
		}
	}
	if f.FlagOnly {
		return f.Default, nil
	}
	text, source := "", ""
	for _, name := range append([]string{f.Env}, f.Deprecated...) {
		switch value := getenv(name); {
		case value == "" || text != "" && f.normalize(value) == f.normalize(text):
		case text == "":
			text, source = value, name
		default:
			return "", f.newProblem(name, value, fmt.Sprintf("the value of %s; set only one of the two names", source))
		}
	}
	return cmp.Or(text, f.Default), nil
}

// newProblem returns a problem without the value of a secret.
func (f *Field) newProblem(name, value, expected string) *Problem {
	if f.Secret {
		value = ""
	}
	return &Problem{Setting: name, Value: value, Secret: f.Secret, Expected: expected}
}

// normalize returns the same text for two texts that set the field to the same value: 10.0.0. and
// 10.0.0.0/24 are the same subnet, and the order of a list does not matter.
func (f *Field) normalize(text string) string {
	scratch := *f
	scratch.value = reflect.New(f.value.Type()).Elem()
	if scratch.setText(text) != nil {
		return text
	}
	if !f.IsList() {
		return fmt.Sprint(scratch.value)
	}
	var elements []string
	for _, element := range scratch.value.Seq2() {
		elements = append(elements, fmt.Sprint(element))
	}
	slices.Sort(elements)
	return strings.Join(slices.Compact(elements), ",")
}

// IsList reports whether the setting has several values, separated by commas.
func (f *Field) IsList() bool {
	_, ok := reflect.TypeAssert[encoding.TextUnmarshaler](f.value.Addr())
	return f.value.Kind() == reflect.Slice && !ok
}

// setText converts text and sets the field. Its error is the expected value.
func (f *Field) setText(text string) error {
	f.value.SetZero()
	if !f.IsList() {
		if text == "" {
			return nil
		}
		return f.convertText(f.value, text)
	}
	for _, part := range splitList(text) {
		element := reflect.New(f.value.Type().Elem()).Elem()
		if err := f.convertText(element, part); err != nil {
			return fmt.Errorf("a comma-separated list, each %w (not %q)", err, part)
		}
		f.value.Set(reflect.Append(f.value, element))
	}
	return nil
}

func (f *Field) convertText(v reflect.Value, text string) error {
	if len(f.Enum) > 0 && !slices.Contains(f.Enum, text) {
		return errors.New(f.Expected())
	}
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("%s (%w)", f.Expected(), err)
		}
		return nil
	}
	var err error
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		var d time.Duration
		d, err = time.ParseDuration(text)
		v.SetInt(int64(d))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(text)
		v.SetBool(b)
	case v.CanInt():
		var n int64
		n, err = strconv.ParseInt(text, 10, v.Type().Bits())
		v.SetInt(n)
	case v.CanUint():
		var n uint64
		n, err = strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(n)
	default:
		panic(fmt.Sprintf("settings: %s has the unsupported type %s", f.Env, v.Type()))
	}
	if err != nil || !f.inBounds(v) {
		return errors.New(f.Expected())
	}
	return nil
}

// inBounds reports whether v is within the field's bounds.
func (f *Field) inBounds(v reflect.Value) bool {
	compareTo := func(text string) int {
		bound := Field{value: reflect.New(v.Type()).Elem(), Env: f.Env}
		if err := bound.setText(text); err != nil {
			panic(fmt.Sprintf("settings: bound of %s: want %v", f.Env, err))
		}
		if v.CanUint() {
			return cmp.Compare(v.Uint(), bound.value.Uint())
		}
		return cmp.Compare(v.Int(), bound.value.Int())
	}
	return (f.Min == "" || compareTo(f.Min) >= 0) && (f.Max == "" || compareTo(f.Max) <= 0)
}

func splitList(text string) []string {
	var parts []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

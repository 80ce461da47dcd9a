// Package settings fills a component's configuration struct from flags and the environment. The
// struct is the single source of flags, environment names, defaults, help, documentation and the schemas of the charts.
// The package guarantees that all problems are reported together, each with the name of its setting. It does not accept a
// secret as a flag, and does not print one. The lists in files of YAML, SOURCES_FILE and ALLOWED_CLIENTS_FILE, are
// described and validated in the same way.
//
// Tags describe a field:
//
//	flag:"listen-address"   name of the flag; in upper case with underscores, LISTEN_ADDRESS, the environment name
//	default:":9443"         value if neither flag nor environment sets one
//	help:"where to listen"  one sentence for --help and the documentation
//	placeholder:"host:port" form of a value; by default the field's type. Forms has those that are checked
//	secret:"true"           environment only: no flag, and the value is never printed
//	flagonly:"true"         not in the environment, for a flag whose name says little there
//	env:"OLD_NAME"          deprecated environment names, separated by commas; if several are set,
//	                        their values must be equivalent
//	enum:"keep,drain"       allowed values
//	min:"1s" max:"1m"       inclusive bounds of an int or a duration
//	required:"true"         must be set; or a condition: must be set if it holds
//	only:"SOURCE_KIND=file" a condition: must not be set unless it holds
//	unset:"text"            what it should be, for the problem that it is not set
//	group:"Link"            heading in the documentation; on a nested struct, of all its fields
//
// A condition is a list of NAME=value, of NAME, which is set, and of !NAME, which is not.
//
// A field is of a type that github.com/caarlos0/env converts, such as a string, a time.Duration or an
// encoding.TextUnmarshaler, whose error says what it wants, or a slice of these (a comma-separated list, or a repeated
// flag). Nested structs without a flag tag are flattened, so that components can share parts of a configuration.
package settings

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/pflag"
)

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
		if !f.flagOnly {
			help += " [$" + f.Env + "]"
		}
		flag := flags.VarPF(&rawFlag{list: f.IsList(), kind: cmp.Or(f.placeholder, strings.Join(f.Enum, "|"), f.form())}, f.Flag, "", help)
		if f.value.Kind() == reflect.Bool {
			flag.NoOptDefVal = "true"
		}
	}
}

// Load fills cfg from flags (parsed, after Register; nil: none), then the environment, then the
// defaults, and calls its Validate() []*Problem method, if it has one. An empty environment variable
// counts as unset. The error joins all problems.
func Load(flags *pflag.FlagSet, getenv func(string) string, cfg any) error {
	all, set, reported := List(cfg), map[string]string{}, map[string]bool{}
	var problems []error
	add := func(p *Problem) { // the first problem of a setting is the cause
		if !reported[p.Setting] {
			reported[p.Setting] = true
			problems = append(problems, p)
		}
	}
	for _, f := range all {
		text, problem := f.lookupText(flags, getenv)
		if set[f.Env] = cmp.Or(text, f.Default); problem != nil {
			add(problem)
			reported[f.Env] = true
			continue
		}
		value, want := f.parse(set[f.Env])
		if want != "" {
			add(f.newProblem(f.Env, text, want))
			value, _ = f.parse(f.Default) // gives conditions and Validate a valid value
			set[f.Env] = f.Default
		}
		f.value.Set(value)
	}
	for _, f := range all {
		want := cmp.Or(f.unset, f.Expected())
		because, required := holds(f.required, set)
		unless, allowed := holds(f.only, set)
		switch isSet := set[f.Env] != ""; {
		case isSet && !allowed:
			add(f.newProblem(f.Env, set[f.Env], "no value, because "+unless))
		case !isSet && f.Required():
			add(&Problem{Setting: f.Env, Expected: want})
		case !isSet && required && f.required != "":
			add(&Problem{Setting: f.Env, Expected: want + ", because " + because})
		}
	}
	if v, ok := cfg.(interface{ Validate() []*Problem }); ok {
		for _, p := range v.Validate() {
			add(p)
		}
	}
	return errors.Join(problems...)
}

// holds reports whether a condition holds for what is set, and because of what: all its parts, or the first that does not
// hold.
func holds(condition string, set map[string]string) (because string, held bool) {
	var reasons []string
	for _, part := range splitList(condition) {
		name, want, compared := strings.Cut(strings.TrimPrefix(part, "!"), "=")
		reason := name + " is set"
		switch {
		case compared:
			reason, held = name+" is "+set[name], set[name] == want
		case set[name] == "":
			reason, held = name+" is not set", part != name
		default:
			held = part == name
		}
		if !held {
			return reason, false
		}
		reasons = append(reasons, reason)
	}
	return strings.Join(reasons, " and "), true
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
	Secret                          bool

	value                              reflect.Value
	placeholder, required, only, unset string
	flagOnly                           bool // Env is the flag, as a person writes it
}

// Pattern is the regular expression of a text, or of an element of a list; empty: any.
func (f *Field) Pattern() string { return Forms[f.placeholder].Pattern }

// Required reports whether the setting must always be set.
func (f *Field) Required() bool { return f.required == "true" }

// List returns the settings of cfg, a pointer to a configuration struct, in the order of its fields.
func List(cfg any) []Field { return walkStruct(reflect.ValueOf(cfg).Elem(), "") }

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
			Min: tag.Get("min"), Max: tag.Get("max"), unset: tag.Get("unset"), required: tag.Get("required"), only: tag.Get("only"),
			Secret: tag.Get("secret") == "true", flagOnly: tag.Get("flagonly") == "true",
		}
		if f.flagOnly {
			f.Env = "--" + name
		}
		if _, want := f.parse(f.Default); want != "" {
			panic(fmt.Sprintf("settings: default of %s: want %s", f.Env, want))
		}
		all = append(all, f)
	}
	return all
}

// lookupText returns the text of the setting from its flag or the environment.
func (f *Field) lookupText(flags *pflag.FlagSet, getenv func(string) string) (string, *Problem) {
	if flags != nil && !f.Secret {
		if flag := flags.Lookup(f.Flag); flag != nil && flag.Changed {
			return flag.Value.String(), nil
		}
	}
	if f.flagOnly {
		return "", nil
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
	return text, nil
}

// normalize returns the same text for two texts that set the field to the same value: 10.0.0. and
// 10.0.0.0/24 are the same subnet, and the order of a list does not matter.
func (f *Field) normalize(text string) string {
	value, want := f.parse(text)
	if want != "" || !f.IsList() {
		return fmt.Sprint(value, want)
	}
	var elements []string
	for _, element := range value.Seq2() {
		elements = append(elements, fmt.Sprint(element))
	}
	slices.Sort(elements)
	return strings.Join(slices.Compact(elements), ",")
}

// parse converts a text. If it is not valid, want says what would be.
func (f *Field) parse(text string) (value reflect.Value, want string) {
	if !f.IsList() {
		return f.parseElement(f.value.Type(), text)
	}
	value, parts := reflect.Zero(f.value.Type()), splitList(text)
	for _, part := range parts {
		element, want := f.parseElement(f.Type(), part)
		if want != "" && len(parts) > 1 {
			want += fmt.Sprintf(", got %q", part)
		}
		if want != "" {
			return value, want
		}
		value = reflect.Append(value, element)
	}
	return value, ""
}

func (f *Field) parseElement(t reflect.Type, text string) (value reflect.Value, want string) {
	holder := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "Value", Type: t, Tag: `env:"VALUE"`}}))
	err := env.ParseWithOptions(holder.Interface(), env.Options{Environment: map[string]string{"VALUE": text}})
	value = holder.Elem().Field(0)
	failed, _ := errors.AsType[env.ParseError](err)
	_, says := reflect.TypeAssert[encoding.TextUnmarshaler](value.Addr())
	switch {
	case err == nil && (text == "" || f.allows(value, text)):
		return value, ""
	case says && failed.Err != nil:
		return value, failed.Err.Error()
	default:
		return value, f.Expected()
	}
}

// allows reports whether a value is one of the field's, within its bounds, and of its form.
func (f *Field) allows(value reflect.Value, text string) bool {
	inBounds := true
	if f.Min != "" {
		low, _ := (&Field{value: f.value}).parseElement(value.Type(), f.Min)
		high, _ := (&Field{value: f.value}).parseElement(value.Type(), f.Max)
		inBounds = low.Int() <= value.Int() && value.Int() <= high.Int()
	}
	return inBounds && (len(f.Enum) == 0 || slices.Contains(f.Enum, text)) &&
		(value.Kind() != reflect.String || Check(f.placeholder, text) == "")
}

// IsList reports whether the setting has several values, separated by commas.
func (f *Field) IsList() bool {
	_, ok := reflect.TypeAssert[encoding.TextUnmarshaler](f.value.Addr())
	return f.value.Kind() == reflect.Slice && !ok
}

// Type returns the type of a value; of a list, that of its elements.
func (f *Field) Type() reflect.Type {
	if f.IsList() {
		return f.value.Type().Elem()
	}
	return f.value.Type()
}

// form is the name of the form of a value.
func (f *Field) form() string { return cmp.Or(f.placeholder, strings.ToLower(f.Type().Name())) }

// Expected describes a valid value.
func (f *Field) Expected() string {
	if len(f.Enum) > 0 {
		return "one of " + strings.Join(f.Enum, ", ")
	}
	text := cmp.Or(Forms[f.form()].Want, f.form())
	if f.Min != "" {
		text += ", " + f.Min + " to " + f.Max
	}
	return text
}

func splitList(text string) (parts []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

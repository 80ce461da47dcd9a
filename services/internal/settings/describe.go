package settings

import (
	"cmp"
	"reflect"
	"strings"
	"time"
)

// Type returns the type of a value; of a list, that of its elements.
func (f *Field) Type() reflect.Type {
	if f.IsList() {
		return f.value.Type().Elem()
	}
	return f.value.Type()
}

// valueName returns the placeholder of a value in --help.
func (f *Field) valueName() string {
	if f.placeholder != "" {
		return f.placeholder
	}
	t, suffix := f.Type(), ""
	if f.IsList() {
		suffix = ",…"
	}
	switch {
	case len(f.Enum) > 0:
		return strings.Join(f.Enum, "|")
	case t == reflect.TypeFor[time.Duration]():
		return "duration" + suffix
	default:
		return cmp.Or(strings.ToLower(t.Name()), "value") + suffix
	}
}

// Expected describes a valid value.
func (f *Field) Expected() string {
	t := f.Type()
	var text string
	switch {
	case len(f.Enum) > 0:
		return "one of " + strings.Join(f.Enum, ", ")
	case f.placeholder != "":
		text = f.placeholder
	case t == reflect.TypeFor[time.Duration]():
		text = "a duration such as 5s"
	case t.Kind() == reflect.Bool:
		text = "true or false"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Uint, t.Kind() == reflect.Uint16, t.Kind() == reflect.Int64:
		text = "a whole number"
	case t.Kind() == reflect.String:
		text = "text"
	case t.Name() == "Prefix":
		text = "a CIDR such as 10.0.0.0/24"
	default:
		text = "a " + strings.ToLower(t.Name())
	}
	switch {
	case f.Min != "" && f.Max != "":
		text += ", " + f.Min + " to " + f.Max
	case f.Min != "":
		text += ", at least " + f.Min
	case f.Max != "":
		text += ", at most " + f.Max
	}
	return text
}

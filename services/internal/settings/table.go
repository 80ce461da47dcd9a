package settings

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// RenderTable renders the settings of cfg, a pointer to a configuration struct, as Markdown, with one
// table per group, in the order of the fields.
func RenderTable(cfg any) string {
	var b strings.Builder
	group, first := "", true
	for _, f := range listFields(cfg) {
		if first || f.group != group {
			if !first {
				b.WriteString("\n")
			}
			if f.group != "" {
				fmt.Fprintf(&b, "**%s**\n\n", f.group)
			}
			b.WriteString("| environment | flag | value | default | meaning |\n|---|---|---|---|---|\n")
		}
		group, first = f.group, false
		flag := "`--" + f.flag + "`"
		if f.secret {
			flag = "none: a secret"
		}
		defaultValue := ""
		switch {
		case f.required:
			defaultValue = "*required*"
		case f.defaultValue != "":
			defaultValue = "`" + escapeCell(f.defaultValue) + "`"
		}
		value, meaning := f.expected(), f.help
		if f.isList() {
			value += ", several separated by commas"
		}
		if len(f.deprecated) > 0 {
			meaning += "; deprecated names: `" + strings.Join(f.deprecated, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.env, flag, escapeCell(value), defaultValue, escapeCell(meaning))
	}
	return b.String()
}

func escapeCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// valueName returns the placeholder of a value in --help.
func (f *field) valueName() string {
	if f.placeholder != "" {
		return f.placeholder
	}
	t, suffix := f.value.Type(), ""
	if f.isList() {
		t, suffix = t.Elem(), ",…"
	}
	switch {
	case len(f.enum) > 0:
		return strings.Join(f.enum, "|")
	case t == reflect.TypeFor[time.Duration]():
		return "duration" + suffix
	default:
		return cmp.Or(strings.ToLower(t.Name()), "value") + suffix
	}
}

// expected describes a valid value.
func (f *field) expected() string {
	t := f.value.Type()
	if f.isList() {
		t = t.Elem()
	}
	var text string
	switch {
	case len(f.enum) > 0:
		return "one of " + strings.Join(f.enum, ", ")
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
	case f.min != "" && f.max != "":
		text += ", " + f.min + " to " + f.max
	case f.min != "":
		text += ", at least " + f.min
	case f.max != "":
		text += ", at most " + f.max
	}
	return text
}

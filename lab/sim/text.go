package sim

import (
	"bufio"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Text is a Script for people to read and to alter; Parse reads it again.
func (s Script) Text() string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"seed %d\nsetup%s\nquiet %s\ntrouble %s\nsettle %s\n",
		s.Seed,
		fields(reflect.ValueOf(s.Setup)),
		s.Quiet,
		s.Trouble,
		s.Settle,
	)
	for _, f := range s.Faults {
		fmt.Fprintf(&b, "fault at=%s for=%s on=%d n=%d %s\n", f.At, f.For, f.On, f.N, f.Kind)
	}
	return b.String()
}

// fields writes each field of a struct of numbers, durations and switches as name=value.
func fields(v reflect.Value) string {
	var b strings.Builder
	for i := range v.NumField() {
		fmt.Fprintf(&b, " %s=%v", v.Type().Field(i).Name, v.Field(i).Interface())
	}
	return b.String()
}

// Parse reads what Text wrote. Empty lines and lines that begin with # say nothing.
func Parse(text string) (Script, error) {
	var s Script
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.read(line); err != nil {
			return s, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return s, lines.Err()
}

func (s *Script) read(line string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "seed":
		s.Seed, err = strconv.ParseUint(rest, 10, 64)
	case "setup":
		err = set(reflect.ValueOf(&s.Setup).Elem(), strings.Fields(rest))
	case "quiet":
		s.Quiet, err = time.ParseDuration(rest)
	case "trouble":
		s.Trouble, err = time.ParseDuration(rest)
	case "settle":
		s.Settle, err = time.ParseDuration(rest)
	case "fault":
		words := strings.SplitN(rest, " ", 5)
		if len(words) < 5 {
			return fmt.Errorf("a fault is at=… for=… on=… n=… and its kind, not %q", rest)
		}
		var f Fault
		f.Kind = Kind(words[4])
		if !slices.Contains(Kinds, f.Kind) {
			return fmt.Errorf("no kind of fault is named %q", f.Kind)
		}
		err = set(reflect.ValueOf(&f).Elem(), words[:4])
		s.Faults = append(s.Faults, f)
	default:
		return fmt.Errorf("nothing begins with %q", word)
	}
	return err
}

// set reads name=value into the field of that name, in whatever case.
func set(v reflect.Value, words []string) error {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		field := v.FieldByNameFunc(func(s string) bool { return strings.EqualFold(s, name) })
		if !field.IsValid() {
			return fmt.Errorf("there is no %q", name)
		}
		switch p := field.Addr().Interface().(type) {
		case *time.Duration:
			d, err := time.ParseDuration(value)
			if err != nil {
				return err
			}
			*p = d
		case *bool:
			b, err := strconv.ParseBool(value)
			if err != nil {
				return err
			}
			*p = b
		case *int:
			n, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			*p = n
		default:
			return fmt.Errorf("%s cannot be set", name)
		}
	}
	return nil
}

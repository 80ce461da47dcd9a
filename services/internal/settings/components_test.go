package settings_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	inventory "github.com/slicefeed/slicefeed/services/inventory/config"
	inventorytest "github.com/slicefeed/slicefeed/services/inventory/config/configtest"
	writer "github.com/slicefeed/slicefeed/services/writer/config"
	writertest "github.com/slicefeed/slicefeed/services/writer/config/configtest"
)

var update = flag.Bool("update", false, "write what is generated from the settings")

// component is one of the binaries, whose settings are new().
type component struct {
	name string
	env  map[string]string // of a valid configuration
	new  func() any
}

var components = []component{
	{"inventory", inventorytest.Env(), func() any { return &inventory.Config{} }},
	{"writer", writertest.Env(), func() any { return &writer.Config{} }},
}

// The file has what each value of each setting does: the fields that it changes, or the problems. An input line sets
// variables, or removes those that have no value; the lines below it are the outcome.
func TestEachValueOfEachSetting(t *testing.T) {
	for _, c := range components {
		path := "testdata/" + c.name + ".txt"
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		base := c.outcome(nil)
		var got strings.Builder
		tried := map[string]int{}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "\t") {
				continue
			}
			got.WriteString(line)
			if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
				continue
			}
			set := map[string]string{}
			for assignment := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), " && ") {
				name, value, _ := strings.Cut(assignment, "=")
				set[name] = value
				tried[name]++
			}
			outcome := slices.DeleteFunc(c.outcome(set), func(line string) bool { return slices.Contains(base, line) })
			if len(outcome) == 0 {
				outcome = []string{"as before"}
			}
			for _, line := range outcome {
				fmt.Fprintf(&got, "\t%s\n", line)
			}
		}
		for _, f := range settings.List(c.new()) {
			if tried[f.Env] < 3 && f.Env != "INVENTORY_EXPORTS_SERVICES" { // which will go
				t.Errorf("%s: %s is tried %d times, want a valid value, an invalid one and none", path, f.Env, tried[f.Env])
			}
		}
		if *update {
			if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(string(text), got.String()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", path, diff)
		}
	}
}

// outcome returns the problems of a configuration, or the values of all its fields.
func (c component) outcome(set map[string]string) (lines []string) {
	env := maps.Clone(c.env)
	maps.Copy(env, set)
	cfg := c.new()
	if err := settings.Load(nil, func(name string) string { return env[name] }, cfg); err != nil {
		return strings.Split(err.Error(), "\n")[1:]
	}
	return describe("", reflect.ValueOf(cfg).Elem())
}

func describe(path string, v reflect.Value) (lines []string) {
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		if field.Kind() == reflect.Struct {
			lines = append(lines, describe(path+name+".", field)...)
			continue
		}
		lines = append(lines, fmt.Sprintf("%s%s is %v", path, name, field.Interface()))
	}
	return lines
}

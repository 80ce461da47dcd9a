package settingstest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type links struct {
	Listen string `flag:"listen-address" default:":9443" help:"where to listen" placeholder:"host:port"`
	Cert   string `flag:"tls-cert-file"                  help:"certificate"     placeholder:"a file"    required:"true"`
}

type config struct {
	Cordoned  string         `flag:"cordoned"               default:"keep" enum:"keep,drain" help:"what a cordon does"`
	Subnets   []netip.Prefix `flag:"secured-subnet-cidr"                                     help:"which addresses count" env:"SECURED_SUBNET_PREFIX"`
	Args      []string       `flag:"inventory-command-args"                                  help:"arguments"`
	Interval  time.Duration  `flag:"poll-interval"          default:"60s"                    help:"how often"                                         min:"1s" max:"1h"`
	Threshold int            `flag:"empty-threshold"        default:"3"                      help:"how many"                                          min:"1"`
	DryRun    bool           `flag:"dry-run"                                                 help:"write nothing"`
	Token     string         `flag:"ionos-token"                                             help:"the token"                                                           secret:"true"`
	Code      uint16         `flag:"code"                                                    help:"a secret number"                                                     secret:"true"`
	Link      links          `                                                                                                                                                        group:"Link"`
}

// The table never has the value of a secret.
func TestRendersTable(t *testing.T) {
	const want = `| environment | flag | value | default | meaning |
|---|---|---|---|---|
| ` + "`CORDONED` | `--cordoned` | one of keep, drain | `keep`" + ` | what a cordon does |
| ` + "`SECURED_SUBNET_CIDR` | `--secured-subnet-cidr`" + ` | a CIDR such as 10.0.0.0/24, several separated by commas |  | which addresses count; deprecated names: ` + "`SECURED_SUBNET_PREFIX`" + ` |
| ` + "`INVENTORY_COMMAND_ARGS` | `--inventory-command-args`" + ` | text, several separated by commas |  | arguments |
| ` + "`POLL_INTERVAL` | `--poll-interval` | a duration such as 5s, 1s to 1h | `60s`" + ` | how often |
| ` + "`EMPTY_THRESHOLD` | `--empty-threshold` | a whole number, at least 1 | `3`" + ` | how many |
| ` + "`DRY_RUN` | `--dry-run`" + ` | true or false |  | write nothing |
| ` + "`IONOS_TOKEN`" + ` | none: a secret | text |  | the token |
| ` + "`CODE`" + ` | none: a secret | a whole number |  | a secret number |

**Link**

| environment | flag | value | default | meaning |
|---|---|---|---|---|
| ` + "`LISTEN_ADDRESS` | `--listen-address` | host:port | `:9443`" + ` | where to listen |
| ` + "`TLS_CERT_FILE` | `--tls-cert-file`" + ` | a file | *required* | certificate |
`
	if diff := cmp.Diff(want, RenderTable(&config{Token: "s3cr3t"})); diff != "" {
		t.Error(diff)
	}
}

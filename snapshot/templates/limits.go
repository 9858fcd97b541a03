package templates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"text/template/parse"
)

const (
	// maxText bounds the template text of one part, maxOutput its result.
	maxText   = 256 << 10
	maxOutput = 1 << 20
	// maxSteps bounds the iterations of all loops of a policy together.
	maxSteps = 10_000
	// maxProblem bounds the text of a problem.
	maxProblem = 1 << 10

	stepFunction, outputFunction, methodFunction = "opgateStep", "opgateOutput", "opgateMethod"
)

// limitError is an error of our own functions, which the template library wraps with its position. The text
// is reported without that.
type limitError string

func (e limitError) Error() string { return string(e) }

func limitErrorf(format string, args ...any) error { return limitError(fmt.Sprintf(format, args...)) }

// undecided are the functions whose result depends on the replica or the time, so that two replicas would judge the
// same write differently, and getHostByName, which queries servers of the author's choice.
var undecided = []string{
	"now", "ago", "shuffle", "uuidv4", "getHostByName",
	"randAlpha", "randAlphaNum", "randAscii", "randNumeric", "randInt", "randBytes",
	"bcrypt", "htpasswd", "derivePassword", "encryptAES",
	"genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert",
	"genSignedCertWithKey",
}

// limits bound one resolution of a policy.
type limits struct {
	ctx context.Context // the library passes no context to functions of templates
	// steps are the iterations of loops; output, produced and found are bytes that were written, made by functions and
	// looked up.
	steps, output, produced, found int
	// anchor and alias report whether the output has what YAML would take for one.
	anchor, alias bool
}

// step is inserted at the beginning of every loop's body, with the bytes of text in that.
func (l *limits) step(text int) (string, error) {
	if l.steps++; l.steps > maxSteps {
		return "", limitErrorf("its loops go round more than %d times", maxSteps)
	}
	return "", cmp.Or(l.inTime(), l.write(text))
}

// inTime fails when the time of the resolution is up.
func (l *limits) inTime() error {
	if l.ctx.Err() != nil {
		return limitErrorf("it takes longer than %s", maxTime)
	}
	return nil
}

// write counts bytes of the output.
func (l *limits) write(size int) error {
	if l.output += min(size, maxOutput+1); l.output > maxOutput {
		return limitErrorf("it resolves to more than 1 MiB")
	}
	return nil
}

// out is inserted at the end of every action that writes to the output.
func (l *limits) out(value any) (any, error) {
	if value == nil {
		return nil, limitErrorf("a value that it asks for is not there; where that is meant, pipe it to default")
	}
	text, ok := value.(string)
	if !ok {
		if measure(value, maxOutput) > maxOutput {
			return nil, limitErrorf("it resolves to more than 1 MiB, or to what is nested too deep")
		}
		text = fmt.Sprint(value) // as it will be printed
	}
	return value, cmp.Or(l.written(text), l.write(len(text)))
}

// written refuses output that has both an anchor and an alias: the library reads it as YAML, also without the quotes
// that the policy has, and a few aliases are a large document.
func (l *limits) written(text string) error {
	l.anchor, l.alias = l.anchor || marks(text, '&'), l.alias || marks(text, '*')
	if l.anchor && l.alias {
		return limitErrorf("it resolves to text with words that begin with & and *, which could be anchors and aliases of YAML")
	}
	return nil
}

// made is inserted after every call of a method, such as Format of a time: the functions count themselves.
func (l *limits) made(value any) (any, error) {
	size := measure(value, maxValue)
	if size > maxValue {
		return nil, limitErrorf("a method makes more than 1 MiB")
	}
	return value, l.produce(size)
}

// bounded inserts calls into template text that count its loops and its output: nothing else ends a template, and
// {{ range 1000000000 }} calls no function.
func (l *limits) bounded(text string) (string, error) {
	if len(text) > maxText {
		return "", fmt.Errorf("it is longer than %d KiB", maxText>>10)
	}
	const name = "policy"
	tree := parse.New(name)
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	if _, err := tree.Parse(text, "{{", "}}", trees); err != nil {
		return "", err
	}
	if len(trees) > 1 {
		return "", errors.New("define and block are not supported")
	}
	if _, err := l.boundList(tree, tree.Root); err != nil {
		return "", err
	}
	return tree.Root.String(), nil
}

// boundList returns the bytes of text in a list and its branches, without those in loops.
func (l *limits) boundList(tree *parse.Tree, list *parse.ListNode) (text int, err error) {
	if list == nil {
		return 0, nil
	}
	for _, node := range list.Nodes {
		var body, otherwise int
		switch node := node.(type) {
		case *parse.TextNode:
			body, err = len(node.Text), l.written(string(node.Text))
		case *parse.ActionNode:
			countMethods(tree, node.Pipe)
			last := node.Pipe.Cmds[len(node.Pipe.Cmds)-1].String()
			if len(node.Pipe.Decl) == 0 && last != "autoindent" { // which must be last, and counts itself
				node.Pipe.Cmds = append(node.Pipe.Cmds, command(tree, outputFunction))
			}
		case *parse.RangeNode:
			body, otherwise, err = l.boundBranch(tree, &node.BranchNode)
			number := &parse.NumberNode{NodeType: parse.NodeNumber, IsInt: true, Int64: int64(body),
				Text: strconv.Itoa(body)}
			step := &parse.ActionNode{NodeType: parse.NodeAction, Pipe: &parse.PipeNode{NodeType: parse.NodePipe,
				Cmds: []*parse.CommandNode{command(tree, stepFunction, number)}}}
			node.List.Nodes = slices.Insert(node.List.Nodes, 0, parse.Node(step))
			body = 0
		case *parse.IfNode:
			body, otherwise, err = l.boundBranch(tree, &node.BranchNode)
		case *parse.WithNode:
			body, otherwise, err = l.boundBranch(tree, &node.BranchNode)
		case *parse.TemplateNode:
			err = errors.New("template is not supported")
		}
		if err != nil {
			return 0, err
		}
		text += body + otherwise
	}
	return text, nil
}

func (l *limits) boundBranch(tree *parse.Tree, branch *parse.BranchNode) (body, otherwise int, err error) {
	countMethods(tree, branch.Pipe)
	if body, err = l.boundList(tree, branch.List); err == nil {
		otherwise, err = l.boundList(tree, branch.ElseList)
	}
	return body, otherwise, err
}

// countMethods inserts a call after each call of a method in a pipeline.
func countMethods(tree *parse.Tree, node parse.Node) {
	switch node := node.(type) {
	case *parse.PipeNode:
		var commands []*parse.CommandNode
		for i, c := range node.Cmds {
			for _, arg := range c.Args {
				countMethods(tree, arg)
			}
			commands = append(commands, c)
			if _, function := c.Args[0].(*parse.IdentifierNode); !function && (i > 0 || len(c.Args) > 1) {
				commands = append(commands, command(tree, methodFunction))
			}
		}
		node.Cmds = commands
	case *parse.ChainNode:
		countMethods(tree, node.Node)
	}
}

// command returns a call of one of our functions.
func command(tree *parse.Tree, function string, args ...parse.Node) *parse.CommandNode {
	identifier := parse.NewIdentifier(function).SetTree(tree)
	return &parse.CommandNode{NodeType: parse.NodeCommand, Args: append([]parse.Node{identifier}, args...)}
}

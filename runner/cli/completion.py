"""``resweep completion``: the script that completes commands and options in a shell."""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

_POWERSHELL = """\
Register-ArgumentCompleter -Native -CommandName resweep -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = $commandAst.ToString().Substring(0, [Math]::Min($cursorPosition, $commandAst.ToString().Length))
    if ($wordToComplete -eq '') { $words = $words + ' ' }
    $env:_RESWEEP_COMPLETE = 'zsh_complete'
    $env:COMP_WORDS = $words
    $env:COMP_CWORD = ($words -split '\\s+').Count - 1
    try { $lines = @(& resweep) } finally {
        Remove-Item Env:_RESWEEP_COMPLETE, Env:COMP_WORDS, Env:COMP_CWORD
    }
    for ($i = 0; $i + 2 -lt $lines.Count; $i += 3) {
        if ($lines[$i] -ne 'plain') { continue }
        $help = if ($lines[$i + 2] -eq '_') { $lines[$i + 1] } else { $lines[$i + 2] }
        [System.Management.Automation.CompletionResult]::new($lines[$i + 1], $lines[$i + 1], 'ParameterValue', $help)
    }
}
"""
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_WHERE = {
    "bash": '~/.bashrc: eval "$(resweep completion bash)"',
    "zsh": '~/.zshrc: eval "$(resweep completion zsh)"',
    "fish": "~/.config/fish/completions/resweep.fish",
    "powershell": "your profile: resweep completion powershell | Out-String | Invoke-Expression",
}


@click.command("completion")
@click.argument("shell", type=click.Choice([*_SHELLS, "powershell"]))
@click.pass_context
def completion(ctx: click.Context, *, shell: str) -> None:
    """Print the completion script of SHELL; it goes to where the shell reads such scripts."""
    root = ctx.find_root().command
    if shell == "powershell":
        click.echo(_POWERSHELL, nl=False)
    else:
        click.echo(_SHELLS[shell](root, {}, "resweep", "_RESWEEP_COMPLETE").source())
    click.echo(f"put it into {_WHERE[shell]}", err=True)

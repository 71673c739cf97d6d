# Sets up (once) and starts the whole runtime in the foreground: ./start_runtime.ps1 [SPEC...] [options of `resweep up`]
# Needs Python 3.11 or newer with its venv module, and git. $env:PYTHON names the interpreter to set up with.
# No param() block: every argument is for `resweep up`, also those that begin with a dash.
Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$PSNativeCommandUseErrorActionPreference = $false

$prepare = Join-Path $PSScriptRoot 'deploy/environment.py'
$isNewEnough = 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'
Remove-Item -Path 'Env:PYTHONHOME' -ErrorAction SilentlyContinue

$names = @('python3.11', 'python3.12', 'python3.13', 'python3.14', 'python3', 'python')
if ($env:PYTHON) { $names = @($env:PYTHON) }

$python = $null
foreach ($name in $names) {
    if (-not (Get-Command -Name $name -CommandType Application -ErrorAction SilentlyContinue)) { continue }
    & $name -I -c $isNewEnough *> $null
    if ($LASTEXITCODE -eq 0) { $python = $name; break }
}
if ($null -eq $python) {
    [Console]::Error.WriteLine("resweep: no Python 3.11 or newer with its venv module found (looked for $names);" +
        ' install one, or name it in $env:PYTHON')
    exit 1
}

$prepared = & $python -I $prepare 'product'
if ($LASTEXITCODE -ne 0) { exit $LASTEXITCODE }

# -P: the folder this is called from may hold anybody's files; Python must not import from it.
& $prepared -P -m resweep.runner up @args
exit $LASTEXITCODE

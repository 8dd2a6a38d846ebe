// The alerts of an app, and who receives them: a module of main.bicep and of worker.bicep.

@description('Begins the names of the alerts.')
param name string

@description('Ends the names of the alerts.')
param token string

@description('Region of the alerts.')
param location string

@description('Tags of the resources.')
param tags { *: string }

@description('Id of Application Insights or of the workspace, with the lines of the log.')
param scopeId string

@description('Begins each query: makes the table traces, with timestamp and message, where the scope does not have it.')
param prefix string = ''

@description('The app always has an instance. If not, silence is no problem.')
param alwaysOn bool = true

@description('Receives the alerts; empty: no action group is made.')
param alertEmail string

@description('Ids of further action groups that receive the alerts; empty ones are left out.')
param actionGroupIds string[]

resource actionGroup 'Microsoft.Insights/actionGroups@2023-01-01' = if (!empty(alertEmail)) {
  name: '${name}-${token}'
  location: 'global'
  tags: tags
  properties: {
    enabled: true
    groupShortName: 'asynccaller'
    emailReceivers: [
      {
        name: 'operators'
        emailAddress: alertEmail
        useCommonAlertSchema: true
      }
    ]
  }
}

// The alerts of docs/operating.md, which says what to do about each. A test compares the queries. Each window reaches
// back over earlier ones, because a row can arrive minutes late. An alert resolves when its query has no result any
// more. For `alive` that would be wrong after two days without a line, so Azure repeats it instead.
@description('Alerts by name.')
var alerts = [
  {
    name: 'poison'
    title: 'A poison queue has messages'
    severity: 2
    every: 'PT5M'
    window: 'PT15M'
    resolves: true
    query: '''
      traces | where timestamp > ago(15m) and message has '"message":"queue"' | extend line = parse_json(message)
      | summarize arg_max(timestamp, line) by queue = tostring(line.queue) | where toint(line.poison) > 0
    '''
  }
  {
    name: 'age'
    title: 'A call is older than 6 hours'
    severity: 2
    every: 'PT15M'
    window: 'PT30M'
    resolves: true
    query: '''
      traces | where timestamp > ago(30m) and message has '"message":"queue"' | extend line = parse_json(message)
      | summarize arg_max(timestamp, line) by queue = tostring(line.queue) | where tolong(line.age) > 6 * 3600 * 1000
    '''
  }
  {
    name: 'alive'
    title: 'The app has not been alive for 15 minutes'
    severity: 1
    every: 'PT5M'
    window: 'P2D'
    resolves: false
    query: '''
      traces | where timestamp > ago(2d) and message has '"message":"alive"'
      | summarize seen = max(timestamp) | where seen < ago(15m)
    '''
  }
  {
    name: 'no-calls'
    title: 'The app runs and makes no calls'
    severity: 1
    every: 'PT5M'
    window: 'PT15M'
    resolves: true
    query: '''
      traces | where timestamp > ago(15m) and (message has "hold mode: no calls are made" or message has "no calls are made, and messages wait")
      | extend line = parse_json(message)
      | where tostring(line.message) startswith "hold mode: no calls are made" or tostring(line.message) startswith "no calls are made, and messages wait"
      | summarize lines = count() | where lines > 0
    '''
  }
  {
    name: 'given-up'
    title: 'More than 10 calls were given up in an hour'
    severity: 2
    every: 'PT15M'
    window: 'PT1H'
    resolves: true
    query: '''
      traces | where timestamp > ago(1h) and message has "Giving up on envelope" | extend line = parse_json(message)
      | where tostring(line.message) startswith "Giving up on envelope" | summarize calls = count() | where calls > 10
    '''
  }
  {
    name: 'failing'
    title: 'More than half of the attempts for one host fail'
    severity: 3
    every: 'PT15M'
    window: 'PT30M'
    resolves: true
    query: '''
      traces | where timestamp > ago(30m) and message has '"message":"settled"' | extend line = parse_json(message)
      | where tostring(line.reason) !in ("busy", "paused", "not_due", "duplicate", "interrupted", "host_gone", "bad_setting", "malformed")
      | summarize attempts = count(), failures = countif(tostring(line.reason) != "delivered") by host = tostring(line.target_host)
      | where failures > 20 and failures * 2 > attempts
    '''
  }
  {
    name: 'certificate'
    title: 'A client certificate ends within 30 days, or has ended'
    severity: 2
    every: 'PT1H'
    window: 'PT2H'
    resolves: true
    query: '''
      traces | where timestamp > ago(2h) and message has '"message":"alive"' | extend line = parse_json(message)
      | summarize lines = countif(toint(line.certificate_days) < 30) | where lines > 0
    '''
  }
  {
    name: 'posts'
    title: 'More than 10 posts for a route were refused in an hour'
    severity: 2
    every: 'PT15M'
    window: 'PT1H'
    resolves: true
    query: '''
      traces | where timestamp > ago(1h) and message has "posts were refused in the last minute" | extend line = parse_json(message)
      | where tostring(line.message) startswith "posts were refused in the last minute"
      | summarize posts = sum(toint(line.posts)) by function = tostring(line.function) | where posts > 10
    '''
  }
]

resource alert 'Microsoft.Insights/scheduledQueryRules@2026-03-01' = [
  for rule in alerts: if (alwaysOn || rule.name != 'alive') {
    name: '${name}-${rule.name}-${token}'
    location: location
    tags: tags
    kind: 'LogAlert'
    properties: {
      displayName: '${name}-${token}: ${rule.title}'
      severity: rule.severity
      enabled: true
      scopes: [scopeId]
      evaluationFrequency: rule.every
      windowSize: rule.window
      autoMitigate: rule.resolves
      muteActionsDuration: rule.resolves ? null : 'PT1H'
      // Azure cannot check a query on a table that has no rows yet.
      skipQueryValidation: true
      criteria: {
        allOf: [
          {
            query: '${prefix}${rule.query}'
            timeAggregation: 'Count'
            operator: 'GreaterThan'
            threshold: 0
            failingPeriods: {
              numberOfEvaluationPeriods: 1
              minFailingPeriodsToAlert: 1
            }
          }
        ]
      }
      actions: {
        actionGroups: concat(filter(actionGroupIds, id => !empty(id)), empty(alertEmail) ? [] : [actionGroup.id])
      }
    }
  }
]

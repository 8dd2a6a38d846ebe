// Everything that a Function App with Async Caller needs, in one resource group. README.md says how to deploy it.
// `go test ./handler` compares it with the code, as text: handler/deploy_test.go expects its layout.

@description('Begins the names of the resources.')
@minLength(2)
@maxLength(18)
param name string = 'async-caller'

param location string = resourceGroup().location

@description('The environment of azd, for its tag; empty without azd.')
param environmentName string = ''

@allowed(['FlexConsumption', 'ElasticPremium'])
param plan string = 'FlexConsumption'

@description('Memory of an instance on Flex Consumption. docs/capacity.md says for which messages 512 is enough.')
@allowed([512, 2048, 4096])
param instanceMemoryMB int = 2048

@description('Most instances; docs/capacity.md says of what. Flex Consumption accepts 40 and more, Elastic Premium fewer as well.')
@minValue(1)
@maxValue(1000)
param maximumInstanceCount int = 40

@description('Size of an instance on Elastic Premium.')
@allowed(['EP1', 'EP2', 'EP3'])
param premiumSize string = 'EP1'

@description('App settings by name: the settings of Async Caller, secrets of targets.json as Key Vault references.')
param settings object = {}

@description('Object id of a person or group that sends, operates and deploys; empty: nobody gets a role here.')
param operatorPrincipalId string = ''

@description('Receives the alerts; empty: no action group is made.')
param alertEmail string = ''

@description('Ids of further action groups that receive the alerts.')
param actionGroupIds array = []

@description('Address range of a virtual network to make for the calls, such as 10.20.0.0/24; empty: none is made.')
param virtualNetworkPrefix string = ''

@description('Id of an existing subnet for the calls, delegated to Microsoft.App/environments (Flex Consumption) or Microsoft.Web/serverFarms.')
param subnetId string = ''

@description('Most GB of log a day. At the cap the workspace takes no more log until the next day, so the alerts are blind. -1: no cap.')
@minValue(-1)
param dailyQuotaGb int = -1

var flex = plan == 'FlexConsumption'
var token = uniqueString(resourceGroup().id, name)
var tags = empty(environmentName) ? {} : { 'azd-env-name': environmentName }
var packageContainer = 'packages'
var packageName = 'async-caller.zip'
var ownSubnet = !empty(virtualNetworkPrefix)

// The queues of functions/; each has a poison queue.
var queues = [
  'async-caller'
  'async-caller-1'
  'async-caller-2'
  'async-caller-3'
  'async-caller-4'
  'async-caller-5'
  'async-caller-6'
  'async-caller-7'
  'async-caller-8'
  'async-caller-9'
  'async-caller-10'
]

resource storage 'Microsoft.Storage/storageAccounts@2025-06-01' = {
  name: 'ac${token}'
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: 'Standard_LRS'
  }
  properties: {
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' = {
  parent: storage
  name: 'default'
  properties: {}
}

resource packages 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: packageContainer
  properties: {
    publicAccess: 'None'
  }
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2025-06-01' = {
  parent: storage
  name: 'default'
  properties: {}
}

resource queue 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-06-01' = [for queueName in queues: {
  parent: queueService
  name: queueName
}]

resource poisonQueue 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-06-01' = [for queueName in queues: {
  parent: queueService
  name: '${queueName}-poison'
}]

resource tableService 'Microsoft.Storage/storageAccounts/tableServices@2025-06-01' = {
  parent: storage
  name: 'default'
  properties: {}
}

resource scheduledTable 'Microsoft.Storage/storageAccounts/tableServices/tables@2025-06-01' = {
  parent: tableService
  name: 'asynccallerscheduled'
}

resource outcomesTable 'Microsoft.Storage/storageAccounts/tableServices/tables@2025-06-01' = {
  parent: tableService
  name: 'asynccallerrun'
}

resource appTable 'Microsoft.Storage/storageAccounts/tableServices/tables@2025-06-01' = {
  parent: tableService
  name: 'asynccallerapp'
}

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: '${name}-${token}'
  location: location
  tags: tags
}

// README.md says what each role is for.
var queueContributor = '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
var tableContributor = '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
var blobOwner = 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'
var blobContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
var metricsPublisher = '3913510d-42f4-4e42-8a64-420c390055eb'

resource storageRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in [queueContributor, tableContributor, blobOwner]: {
  scope: storage
  name: guid(storage.id, identity.id, role)
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}]

resource insightsRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: insights
  name: guid(insights.id, identity.id, metricsPublisher)
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', metricsPublisher)
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

resource operatorRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in [queueContributor, tableContributor, blobContributor]: if (!empty(operatorPrincipalId)) {
  scope: storage
  name: guid(storage.id, operatorPrincipalId, role)
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    principalId: operatorPrincipalId
  }
}]

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' = {
  name: '${name}-${token}'
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: 30
    workspaceCapping: {
      dailyQuotaGb: dailyQuotaGb
    }
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: '${name}-${token}'
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
  }
}

resource network 'Microsoft.Network/virtualNetworks@2025-01-01' = if (ownSubnet) {
  name: '${name}-${token}'
  location: location
  tags: tags
  properties: {
    addressSpace: {
      addressPrefixes: [virtualNetworkPrefix]
    }
    subnets: [
      {
        name: 'app'
        properties: {
          addressPrefix: virtualNetworkPrefix
          delegations: [
            {
              name: 'app'
              properties: {
                serviceName: flex ? 'Microsoft.App/environments' : 'Microsoft.Web/serverFarms'
              }
            }
          ]
        }
      }
    ]
  }
}

resource serverFarm 'Microsoft.Web/serverfarms@2024-11-01' = {
  name: '${name}-${token}'
  location: location
  tags: tags
  kind: flex ? 'functionapp' : 'elastic'
  sku: flex ? { name: 'FC1', tier: 'FlexConsumption' } : { name: premiumSize, tier: 'ElasticPremium' }
  properties: flex ? { reserved: true } : { reserved: true, maximumElasticWorkerCount: maximumInstanceCount }
}

resource app 'Microsoft.Web/sites@2024-11-01' = {
  name: '${name}-${token}'
  location: location
  tags: union(tags, { 'azd-service-name': 'async-caller' })
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identity.id}': {}
    }
  }
  properties: {
    serverFarmId: serverFarm.id
    httpsOnly: true
    clientAffinityEnabled: false
    keyVaultReferenceIdentity: identity.id
    virtualNetworkSubnetId: ownSubnet ? '${network.id}/subnets/app' : empty(subnetId) ? null : subnetId
    // Flex Consumption refuses most members of siteConfig, even if they are null: they must be absent there.
    siteConfig: union({ minTlsVersion: '1.2' }, flex ? {} : {
      ftpsState: 'Disabled'
      functionAppScaleLimit: maximumInstanceCount
      minimumElasticInstanceCount: 1
    })
    functionAppConfig: flex ? {
      runtime: {
        name: 'custom'
        version: '1.0'
      }
      deployment: {
        storage: {
          type: 'blobContainer'
          value: '${storage.properties.primaryEndpoints.blob}${packageContainer}'
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identity.id
          }
        }
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: maximumInstanceCount
      }
    } : null
  }
  dependsOn: [packages, queue, poisonQueue, scheduledTable, outcomesTable, storageRole, insightsRole]
}

var identitySettings = {
  AzureWebJobsStorage__accountName: storage.name
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: identity.properties.clientId
  APPLICATIONINSIGHTS_CONNECTION_STRING: insights.properties.ConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identity.properties.clientId};Authorization=AAD'
}

// docs/log.md recommends the level, and no records of the host's own calls. The log must not be sampled: alerts count
// its lines.
var logSettings = {
  AzureFunctionsJobHost__logging__logLevel__Function: 'Warning'
  AzureFunctionsJobHost__logging__applicationInsights__samplingSettings__excludedTypes: 'Trace'
  AzureFunctionsJobHost__logging__applicationInsights__enableDependencyTracking: 'false'
}

// Elastic Premium would need a shared key for a file share, so the app runs from the package in its container.
var premiumSettings = {
  FUNCTIONS_EXTENSION_VERSION: '~4'
  FUNCTIONS_WORKER_RUNTIME: 'custom'
  WEBSITE_RUN_FROM_PACKAGE: '${storage.properties.primaryEndpoints.blob}${packageContainer}/${packageName}'
  WEBSITE_RUN_FROM_PACKAGE_BLOB_MI_RESOURCE_ID: identity.id
}

resource appSettings 'Microsoft.Web/sites/config@2024-11-01' = {
  parent: app
  name: 'appsettings'
  properties: union(identitySettings, logSettings, flex ? {} : premiumSettings, settings)
}

// Deployments authenticate with Microsoft Entra ID, never with a publishing password.
resource passwords 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-11-01' = [for endpoint in ['ftp', 'scm']: if (!flex) {
  parent: app
  name: endpoint
  properties: {
    allow: false
  }
}]

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
      | where tostring(line.reason) !in ("busy", "not_due", "interrupted", "host_gone", "bad_setting", "malformed")
      | summarize attempts = count(), failures = countif(tostring(line.reason) != "delivered") by host = tostring(line.target_host)
      | where failures > 20 and failures * 2 > attempts
    '''
  }
]

resource alert 'Microsoft.Insights/scheduledQueryRules@2026-03-01' = [for rule in alerts: {
  name: '${name}-${rule.name}-${token}'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: 'Async Caller: ${rule.title}'
    severity: rule.severity
    enabled: true
    scopes: [insights.id]
    evaluationFrequency: rule.every
    windowSize: rule.window
    autoMitigate: rule.resolves
    muteActionsDuration: rule.resolves ? null : 'PT1H'
    // Azure cannot check a query on a table that has no rows yet.
    skipQueryValidation: true
    criteria: {
      allOf: [
        {
          query: rule.query
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
      actionGroups: concat(actionGroupIds, empty(alertEmail) ? [] : [actionGroup.id])
    }
  }
}]

// docs/operating.md describes it. The name of a workbook must be a GUID.
resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(insights.id, 'workbook')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Async Caller: ${name}'
    category: 'workbook'
    sourceId: insights.id
    serializedData: string(union(loadJsonContent('workbook.json'), { fallbackResourceIds: [insights.id] }))
  }
}

// Azure changes the letter case of an output's name that begins with a capital.
output appName string = app.name
output accountName string = storage.name
